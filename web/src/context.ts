/** What all views know: who looks, at which moment, in which language and light. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "./api";
import type { Language } from "./i18n";
import type { Connection } from "./live";

export interface Viewer {
  session: Session;
  /** The moment of the record that is shown, as ISO text; null: now. */
  at: string | null;
  setAt: (at: string | null) => void;
  language: Language;
  theme: string;
  /** Views report here whether what they show is live. */
  report: (connection: Connection) => void;
}

export const ViewerContext = createContext<Viewer | null>(null);

export function useViewer(): Viewer {
  const viewer = useContext(ViewerContext);
  if (!viewer) throw new Error("a view outside of the page");
  return viewer;
}
