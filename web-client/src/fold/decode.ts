// Checks JSON from others, part by part. What passes has exactly the fields that are asked for.

import { ExactNumber, isObject } from "./json";
import type { JsonObject } from "./json";
import { parseTimestamp } from "./time";
import type { Digest, Timestamp } from "./types";

/** The value is not of the expected form. */
export class Malformed extends Error {}

/** Checks a value; throws `Malformed`. `undefined` stands for a field that is not there. */
export type Decoder<T> = (value: unknown) => T;

type Decoded<Fields> = { [Name in keyof Fields]: Fields[Name] extends Decoder<infer T> ? T : never };
type OptionalNames<T> = { [Name in keyof T]: undefined extends T[Name] ? Name : never }[keyof T];
type WithOptional<T> = { [Name in Exclude<keyof T, OptionalNames<T>>]: T[Name] } & {
  [Name in OptionalNames<T>]?: Exclude<T[Name], undefined>;
};
/** The object that these fields make; those that may be absent are optional. */
type ObjectOf<Fields> = { [Name in keyof WithOptional<Decoded<Fields>>]: WithOptional<Decoded<Fields>>[Name] };

type Fields = Record<string, Decoder<unknown>>;

export function object<F extends Fields>(fields: F): Decoder<ObjectOf<F>> {
  const names = Object.keys(fields);
  return (value) => {
    const from = jsonObject(value);
    const decoded: JsonObject = {};
    for (const name of names) {
      const field = (fields[name] as Decoder<unknown>)(Object.hasOwn(from, name) ? from[name] : undefined);
      if (field !== undefined) decoded[name] = field;
    }
    return decoded as ObjectOf<F>;
  };
}

/** Two objects in one. */
export function both<A extends object, B extends object>(a: Decoder<A>, b: Decoder<B>): Decoder<A & B> {
  return (value) => ({ ...a(value), ...b(value) });
}

export const jsonObject: Decoder<JsonObject> = (value) => {
  if (!isObject(value)) throw new Malformed("not an object");
  return value;
};

export const anything: Decoder<unknown> = (value) => value ?? undefined;

export const text: Decoder<string> = (value) => {
  if (typeof value !== "string") throw new Malformed("not a text");
  return value;
};

export const flag: Decoder<boolean> = (value) => {
  if (typeof value !== "boolean") throw new Malformed("neither true nor false");
  return value;
};

/** A number with a fraction. */
export const decimal: Decoder<number> = (value) => {
  const number = value instanceof ExactNumber ? Number(value.text) : value;
  if (typeof number !== "number" || !Number.isFinite(number)) throw new Malformed("not a number");
  return number;
};

export const integer: Decoder<number> = (value) => {
  const written = value instanceof ExactNumber && /^-?\d+$/.test(value.text) ? Number(value.text) : value;
  if (typeof written !== "number" || !Number.isInteger(written)) throw new Malformed("not a whole number");
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, written));
};

/** A whole number that is not negative. One that is too large to count with is the largest. */
export const count: Decoder<number> = (value) => {
  const number = integer(value);
  if (number < 0) throw new Malformed("a negative number");
  return number;
};

/** A whole number of 32 bits. */
export const smallCount: Decoder<number> = (value) => {
  const number = count(value);
  if (number > 0xffff_ffff) throw new Malformed("too large a number");
  return number;
};

const ID = /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/;

/** The id of a session, a participant or a message. */
export const id: Decoder<string> = (value) => {
  if (typeof value !== "string" || !ID.test(value)) throw new Malformed("not an id");
  return value;
};

export const timestamp: Decoder<Timestamp> = (value) => {
  const time = typeof value === "string" ? parseTimestamp(value) : null;
  if (time === null) throw new Malformed("not a time");
  return time;
};

export const digest: Decoder<Digest> = (value) => {
  if (typeof value !== "string" || !/^[0-9a-fA-F]{64}$/.test(value)) throw new Malformed("not a digest");
  return value.toLowerCase();
};

export function oneOf<Name extends string>(...names: Name[]): Decoder<Name> {
  const known: ReadonlySet<unknown> = new Set(names);
  return (value) => {
    if (!known.has(value)) throw new Malformed("none of the known names");
    return value as Name;
  };
}

export function listOf<T>(item: Decoder<T>): Decoder<T[]> {
  return (value) => {
    if (!Array.isArray(value)) throw new Malformed("not a list");
    return value.map(item);
  };
}

/** An object with any keys and one kind of value. */
export function recordOf<T>(field: Decoder<T>): Decoder<Record<string, T>> {
  return (value) => {
    const decoded = emptyRecord<T>();
    for (const [key, item] of Object.entries(jsonObject(value))) decoded[key] = field(item);
    return decoded;
  };
}

/** A record without a prototype, in which any key of others is a key and nothing else. */
export function emptyRecord<T>(): Record<string, T> {
  return Object.create(null) as Record<string, T>;
}

/** Absent or null, or a value. */
export function optional<T>(item: Decoder<T>): Decoder<T | undefined> {
  return (value) => (value === undefined || value === null ? undefined : item(value));
}

/** A value that stands for an absent one. */
export function or<T>(item: Decoder<T>, absent: () => T): Decoder<T> {
  return (value) => (value === undefined ? absent() : item(value));
}

/** A list that is left out when it is empty. */
export function someOf<T>(item: Decoder<T>): Decoder<T[] | undefined> {
  const list = listOf(item);
  return (value) => {
    const decoded = value === undefined ? [] : list(value);
    return decoded.length === 0 ? undefined : decoded;
  };
}

/** A flag that is left out when it is false. */
export const ifTrue: Decoder<boolean | undefined> = (value) =>
  value === undefined || !flag(value) ? undefined : true;
