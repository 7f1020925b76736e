/** Addresses of the page: everything after the "#" is a path and a query, so any view can be linked to. */

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parsed(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = mark === -1 ? text : text.slice(0, mark);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(mark === -1 ? "" : text.slice(mark + 1)) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(path: string[], query?: URLSearchParams | Record<string, string | null | undefined>): string {
  const pairs = query instanceof URLSearchParams ? [...query] : Object.entries(query ?? {});
  const search = new URLSearchParams(pairs.filter((pair): pair is [string, string] => pair[1] !== null && pair[1] !== undefined && pair[1] !== ""));
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The address of a job; for one that is gone, with its uid. */
export function jobAddress(id: string, query?: Record<string, string | null | undefined>): string {
  return address(["job", ...id.split("/")], query);
}
