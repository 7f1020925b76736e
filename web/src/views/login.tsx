/** A viewer without a session: a token of the cluster is pasted, and used for this viewer's requests only. */

import { useState } from "preact/hooks";
import { CopyButton, Failure, Field } from "../components/ui";
import { post, sentence } from "../http";
import { t } from "../i18n";

/** Where a dashboard is opened by links, there is nothing to type. */
function ByLink({ hint }: { hint: string }) {
  return (
    <main id="main" class="login" tabIndex={-1}>
      <div class="panel login-panel">
        <h1>gangline</h1>
        <p>{hint}</p>
        <p class="command">
          <code>gangline dashboard</code>
          <CopyButton text="gangline dashboard" />
        </p>
      </div>
    </main>
  );
}

export function Login({ done, hint, login }: { done: () => void; hint: string; login: string }) {
  return login === "link" ? <ByLink hint={hint} /> : <ByToken done={done} hint={hint} />;
}

function ByToken({ done, hint }: { done: () => void; hint: string }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await post("api/login", { token: token.trim() });
      setToken("");
      done();
    } catch (problem) {
      setError(sentence(problem));
      setBusy(false);
    }
  };
  return (
    <main id="main" class="login" tabIndex={-1}>
      <form class="panel login-panel" onSubmit={(event) => void send(event)}>
        <h1>gangline</h1>
        <p>{t("login.lead")}</p>
        {hint && <p class="faint">{hint}</p>}
        <Field label={t("login.token")}>
          <input class="input" type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </Field>
        <Failure message={error} />
        <button type="submit" class="button primary" disabled={busy || !token.trim()}>
          {t("login.send")}
        </button>
        <p class="faint">{t("login.hint")}</p>
      </form>
    </main>
  );
}
