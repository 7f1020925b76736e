/** The heat map of nodes. */

import type { ClusterView, GangOnNode, NodeRow } from "../api";

const FIRST = ["cpu", "memory"];
const LAST = ["ephemeral-storage", "pods"];

/** The resources of all nodes: CPU and memory, then devices, then what counts least. */
export function resourcesOf(nodes: NodeRow[]): string[] {
  const all = [...new Set(nodes.flatMap((node) => Object.keys(node.resources)))].filter((name) => !name.startsWith("hugepages-") || nodes.some((node) => (node.resources[name]?.total ?? 0) > 0));
  const weight = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : LAST.includes(name) ? 100 + LAST.indexOf(name) : 10);
  return all.sort((a, b) => weight(a) - weight(b) || a.localeCompare(b));
}

export function useOf(node: NodeRow, resource: string): number | null {
  const use = node.resources[resource];
  return use && use.total > 0 ? Math.min(1, Math.max(0, use.used / use.total)) : null;
}

/** Full, half, empty: a letter-like sign beside the number, for those who see no colour. */
export function useSign(share: number): string {
  return share >= 0.995 ? "█" : share >= 0.66 ? "▆" : share >= 0.33 ? "▄" : share > 0.005 ? "▂" : "▁";
}

export function gangName(gang: GangOnNode): string {
  return gang.namespace ? `${gang.namespace}/${gang.job}` : gang.job;
}

export interface GangSummary {
  name: string;
  nodes: number;
  pods: number;
}

/** Which gang is on how many nodes; the largest first. */
export function gangsOf(nodes: NodeRow[]): GangSummary[] {
  const sums = new Map<string, GangSummary>();
  for (const node of nodes) {
    for (const gang of node.gangs) {
      const name = gangName(gang);
      const sum = sums.get(name) ?? { name, nodes: 0, pods: 0 };
      sums.set(name, { name, nodes: sum.nodes + 1, pods: sum.pods + gang.pods });
    }
  }
  return [...sums.values()].sort((a, b) => b.pods - a.pods || a.name.localeCompare(b.name));
}

/** A patch of the cluster: its nodes by name, or all of them. */
export function patchedCluster(view: ClusterView, patch: Partial<ClusterView> & { upsert?: NodeRow[]; remove?: string[] }): ClusterView {
  const { upsert, remove, ...rest } = patch;
  const changed = new Map((upsert ?? []).map((node) => [node.name, node]));
  const gone = new Set(remove ?? []);
  const nodes = rest.nodes ?? (changed.size || gone.size ? [...view.nodes.filter((node) => !gone.has(node.name)).map((node) => changed.get(node.name) ?? node), ...[...changed.values()].filter((node) => !view.nodes.some((old) => old.name === node.name))] : view.nodes);
  return { ...view, ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null && value !== undefined)), nodes };
}
