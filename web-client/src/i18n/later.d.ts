// A language's file, of which only what is loaded later is taken.

declare module "*?later" {
  export const laterTexts: import("./index").LaterTexts;
}
