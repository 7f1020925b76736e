/** All shortcuts that work now, and the switch that turns them off. */

import { t } from "../i18n";
import { activeShortcuts } from "../shortcuts";
import { Dialog } from "./ui";

export function Help({ close, enabled, enable }: { close: () => void; enabled: boolean; enable: (on: boolean) => void }) {
  const seen = new Map(activeShortcuts().map((shortcut) => [shortcut.keys, shortcut]));
  return (
    <Dialog title={t("help.title")} close={close} wide>
      <dl class="keys">
        {[...seen.values()].map((shortcut) => (
          <div key={shortcut.keys}>
            <dt>
              {shortcut.keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{t(shortcut.label)}</dd>
          </div>
        ))}
      </dl>
      <p>{t("help.timeline")}</p>
      <label class="check">
        <input type="checkbox" checked={enabled} onChange={(event) => enable(event.currentTarget.checked)} />
        {t("help.enabled")}
      </label>
    </Dialog>
  );
}
