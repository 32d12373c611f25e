// Keeps what cannot be drawn from taking everything around it along.

import { Component } from "preact";
import type { ComponentChildren } from "preact";
import { t } from "../i18n";

interface Props {
  /** How much is lost if it cannot be drawn. */
  kind: "entry" | "screen";
  /** What is drawn. When this changes, drawing it is tried again. */
  of: unknown;
  /** The element that the words are in, where a list takes no other. */
  as?: "div" | "li";
  children?: ComponentChildren;
}

interface State {
  /** What could not be drawn. */
  failed: { of: unknown } | null;
}

export class Boundary extends Component<Props, State> {
  override state: State = { failed: null };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ failed: { of: this.props.of } });
  }

  override render() {
    const { kind, of, as: Element = "div", children } = this.props;
    const { failed } = this.state;
    if (failed === null || !Object.is(failed.of, of)) return children;
    if (kind === "entry") return <Element class="quiet not-drawn">{t().app.entryFailed}</Element>;
    return (
      <Element class="center" role="alert">
        <p>{t().app.screenFailed}</p>
        <button onClick={() => this.setState({ failed: null })}>{t().app.retry}</button>
      </Element>
    );
  }
}
