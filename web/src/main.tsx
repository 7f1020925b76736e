import { render } from "preact";
import { App } from "./app";
import { listen } from "./shortcuts";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/views.css";

const root = document.getElementById("app");
if (root) {
  listen();
  render(<App />, root);
}
