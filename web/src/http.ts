/** Requests to the server the page came from. */

export class ApiError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly resource = "",
    readonly namespace = "",
    /** With code 401: how a viewer gets a session, "link" or "token". */
    readonly login = "",
  ) {
    super(message);
  }
}

interface ErrorBody {
  error?: { code?: number; message?: string; resource?: string | null; namespace?: string | null; login?: string | null };
}

async function failure(response: Response): Promise<ApiError> {
  let body: ErrorBody = {};
  try {
    body = (await response.json()) as ErrorBody;
  } catch {
    // Not our server's words: a proxy's page, or nothing.
  }
  const said = body.error;
  return new ApiError(said?.code ?? response.status, said?.message ?? `${response.status} ${response.statusText}`.trim(), said?.resource ?? "", said?.namespace ?? "", said?.login ?? "");
}

/** Called when the session has ended. */
let whenUnauthorized: (error: ApiError) => void = () => {};

export function onUnauthorized(run: (error: ApiError) => void): void {
  whenUnauthorized = run;
}

async function answer<T>(response: Response): Promise<T> {
  if (!response.ok) {
    const error = await failure(response);
    if (error.code === 401) whenUnauthorized(error);
    throw error;
  }
  return (response.status === 204 ? null : await response.json()) as T;
}

/** Why a stream is not served; null if it is, or if nobody answers. */
export async function refusal(url: string): Promise<ApiError | null> {
  const abort = new AbortController();
  try {
    await answer(await fetch(url, { headers: { Accept: "text/event-stream" }, credentials: "same-origin", signal: abort.signal }).then((response) => (response.ok ? new Response(null, { status: 204 }) : response)));
    return null;
  } catch (error) {
    return error instanceof ApiError ? error : null;
  } finally {
    abort.abort();
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function withQuery(path: string, query: Query): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return answer<T>(await fetch(withQuery(path, query), { headers: { Accept: "application/json" }, credentials: "same-origin", ...(signal ? { signal } : {}) }));
}

/** The header is what other sites cannot send: it keeps them from acting in the viewer's name. */
export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  return answer<T>(
    await fetch(path, {
      method: "POST",
      headers: { Accept: "application/json", "Content-Type": "application/json", "X-Gangline-Request": "1" },
      credentials: "same-origin",
      body: JSON.stringify(body),
    }),
  );
}

/** A sentence for any error. */
export function sentence(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return "";
  return error instanceof Error ? error.message : String(error);
}
