/** The cluster: nodes and resources as a heat map, which gang is where, and whether a job would fit. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ClusterView, FitAnswer, NodeRow } from "../api";
import { Empty, Failure, Field, Loading, Notice, Refusals } from "../components/ui";
import { VirtualList } from "../components/virtual_list";
import { Icon } from "../components/icons";
import { YamlInput } from "../components/yaml_input";
import { useViewer } from "../context";
import { go, useFollowed } from "../hooks";
import { post, sentence, withQuery } from "../http";
import { t } from "../i18n";
import { gangName, gangsOf, patchedCluster, resourcesOf, useOf, useSign } from "../model/cluster";
import { amountText, percentText } from "../model/numbers";
import { quantity } from "../model/quantity";
import { address } from "../model/route";
import { useShortcuts } from "../shortcuts";

const ROW = 52;

export function Cluster({ query }: { query: URLSearchParams }) {
  const { at, report, session } = useViewer();
  const cluster = useFollowed<ClusterView, Partial<ClusterView>>(withQuery("api/stream", { view: "cluster" }), at === null ? null : withQuery("api/cluster", { at }), patchedCluster, (snapshot) => snapshot as ClusterView);
  useEffect(() => report(cluster.connection), [cluster.connection]);
  const text = query.get("text") ?? "";
  const gang = query.get("gang") ?? "";
  const set = (change: Record<string, string>): void => go(address(["cluster"], { text, gang, ...(at ? { at } : {}), ...change }), true);
  useShortcuts([{ keys: "/", label: "keys.search", run: () => document.querySelector<HTMLInputElement>("#node-search")?.focus() }]);

  const nodes = cluster.data?.nodes ?? [];
  const resources = useMemo(() => resourcesOf(nodes), [nodes]);
  const gangs = useMemo(() => gangsOf(nodes), [nodes]);
  const shown = useMemo(() => nodes.filter((node) => node.name.toLowerCase().includes(text.toLowerCase()) && (!gang || node.gangs.some((one) => gangName(one) === gang))), [nodes, text, gang]);
  return (
    <div class="view">
      <header class="view-head">
        <h1>{t("nav.cluster")}</h1>
        {nodes.length > 0 && <p class="faint">{t("cluster.summary", { n: nodes.length, ready: nodes.filter((node) => node.ready).length })}</p>}
      </header>
      <Refusals refused={cluster.data?.refused} />
      <Failure message={cluster.error} />
      {cluster.data === null && cluster.error === null && <Loading />}
      {nodes.length > 0 && <Totals nodes={nodes} resources={resources} />}
      <div class="cluster-grid">
        <section class="panel" aria-labelledby="nodes-title">
          <header class="panel-head">
            <h2 id="nodes-title">{t("cluster.nodes")}</h2>
            <div class="search small">
              <Icon name="search" />
              <Field label={t("cluster.search")} hidden>
                <input id="node-search" class="input" type="search" placeholder={t("cluster.search")} value={text} onInput={(event) => set({ text: event.currentTarget.value })} />
              </Field>
            </div>
          </header>
          {cluster.data !== null && nodes.length === 0 && <Empty title={t(cluster.data.refused?.some((one) => one.resource === "nodes") ? "cluster.hidden" : "cluster.none")} />}
          {nodes.length > 0 && shown.length === 0 && <Empty title={t("board.noMatch")} />}
          {shown.length > 0 && <HeatMap nodes={shown} resources={resources} gang={gang} choose={(name) => set({ gang: name === gang ? "" : name })} />}
        </section>
        <div class="cluster-side">
          {at === null && session.tools?.includes("fit") !== false && <Fit />}
          {gangs.length > 0 && (
            <section class="panel" aria-labelledby="gangs-title">
              <header class="panel-head">
                <h2 id="gangs-title">{t("cluster.gangs")}</h2>
              </header>
              <ul class="plain gang-list">
                {gangs.slice(0, 40).map((one) => (
                  <li key={one.name}>
                    <button type="button" class="gang-item" aria-pressed={one.name === gang} onClick={() => set({ gang: one.name === gang ? "" : one.name })}>
                      <strong>{one.name}</strong>
                      <span class="faint">{t("cluster.gangPlace", { n: one.pods, nodes: one.nodes })}</span>
                    </button>
                    <a href={boardOf(one.name)}>{t("open")}</a>
                  </li>
                ))}
              </ul>
            </section>
          )}
          <Holes view={cluster.data} />
        </div>
      </div>
    </div>
  );
}

function Totals({ nodes, resources }: { nodes: NodeRow[]; resources: string[] }) {
  return (
    <dl class="facts">
      {resources.slice(0, 6).map((resource) => {
        const used = nodes.reduce((sum, node) => sum + (node.resources[resource]?.used ?? 0), 0);
        const total = nodes.reduce((sum, node) => sum + (node.resources[resource]?.total ?? 0), 0);
        return (
          <div key={resource} class="fact">
            <dt>{resource}</dt>
            <dd>
              {amountText(resource, used)} <span class="faint">/ {amountText(resource, total)}</span>
              <span class="meter" aria-hidden="true">
                <span class="meter-fill" style={{ inlineSize: `${total > 0 ? (used / total) * 100 : 0}%` }} />
              </span>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function HeatMap({ nodes, resources, gang, choose }: { nodes: NodeRow[]; resources: string[]; gang: string; choose: (name: string) => void }) {
  const columns = { gridTemplateColumns: `minmax(8rem, 1.4fr) repeat(${resources.length}, minmax(5.5rem, 1fr)) minmax(9rem, 1.6fr)` };
  return (
    <div class="heat-scroll" tabIndex={0} role="group" aria-label={t("cluster.nodes")}>
      <div class="heat" role="table" aria-label={t("cluster.heat")} aria-rowcount={nodes.length + 1}>
        <div role="rowgroup">
          <div role="row" class="heat-head" style={columns} aria-rowindex={1}>
            <span role="columnheader">{t("column.node")}</span>
            {resources.map((resource) => (
              <span key={resource} role="columnheader" title={resource}>
                {resource}
              </span>
            ))}
            <span role="columnheader">{t("cluster.gangs")}</span>
          </div>
        </div>
        <VirtualList
          count={nodes.length}
          rowHeight={ROW}
          scroller="page"
          role="rowgroup"
          render={(index) => {
            const node = nodes[index];
            return (
              node && (
                <div key={node.name} role="row" class="heat-row" style={columns} aria-rowindex={index + 2}>
                  <span role="rowheader" class="heat-node" data-ready={node.ready ? "yes" : "no"}>
                    {node.name}
                    {!node.ready && <span class="sub">{t("cluster.notReady")}</span>}
                    {node.ready && node.schedulable === false && <span class="sub">{t("cluster.cordoned")}</span>}
                  </span>
                  {resources.map((resource) => (
                    <HeatCell key={resource} node={node} resource={resource} />
                  ))}
                  <span role="cell" class="heat-gangs">
                    {node.gangs.slice(0, 4).map((one) => (
                      <button key={gangName(one)} type="button" class="chip" aria-pressed={gangName(one) === gang} onClick={() => choose(gangName(one))}>
                        {gangName(one).split("/").at(-1)}
                      </button>
                    ))}
                    {node.gangs.length > 4 && <span class="faint">+{node.gangs.length - 4}</span>}
                  </span>
                </div>
              )
            );
          }}
        />
      </div>
    </div>
  );
}

function HeatCell({ node, resource }: { node: NodeRow; resource: string }) {
  const share = useOf(node, resource);
  const use = node.resources[resource];
  if (share === null || !use) {
    return (
      <span role="cell" class="heat-cell none">
        –
      </span>
    );
  }
  return (
    <span role="cell" class="heat-cell" style={{ "--share": String(share) }}>
      <span class="heat-share">
        <span aria-hidden="true" class="heat-sign">
          {useSign(share)}
        </span>
        {percentText(share)}
      </span>
      <span class="heat-free">{t("cluster.free", { amount: amountText(resource, use.free) })}</span>
    </span>
  );
}

function Holes({ view }: { view: ClusterView | null }) {
  const holes = view?.holes ?? [];
  if (!holes.length) return null;
  return (
    <section class="panel" aria-labelledby="holes-title">
      <header class="panel-head">
        <h2 id="holes-title">{t("cluster.holes")}</h2>
      </header>
      <ul class="plain hole-list">
        {holes.slice(0, 12).map((hole) => (
          <li key={hole.node}>
            <strong>{hole.node}</strong>{" "}
            <span class="faint">
              {Object.entries(hole.free)
                .filter(([resource]) => resource !== "pods" && resource !== "ephemeral-storage")
                .map(([resource, amount]) => `${resource} ${amountText(resource, quantity(amount) ?? 0)}`)
                .join(" · ")}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The jobs of that name on the board. */
function boardOf(gang: string): string {
  const [namespace, name] = gang.includes("/") ? gang.split("/") : ["", gang];
  return address([], { namespace, text: name });
}

function Fit() {
  const [yaml, setYaml] = useState("");
  const [answer, setAnswer] = useState<FitAnswer | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const fits = answer?.results?.every((one) => one.fits !== false) ?? false;
  const ask = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setAnswer(await post<FitAnswer>("api/cluster/fit", { yaml }));
    } catch (problem) {
      setAnswer(null);
      setError(sentence(problem));
    } finally {
      setBusy(false);
    }
  };
  return (
    <section class="panel" aria-labelledby="fit-title">
      <header class="panel-head">
        <h2 id="fit-title">{t("fit.title")}</h2>
      </header>
      <form class="fit" onSubmit={(event) => void ask(event)}>
        <YamlInput label={t("fit.yaml")} value={yaml} change={setYaml} rows={8} id="fit-yaml" />
        <button type="submit" class="button primary" disabled={busy || !yaml.trim()}>
          {t("fit.ask")}
        </button>
      </form>
      <Failure message={error} />
      {answer && (
        <div class="fit-answer" role="status" data-fits={fits ? "yes" : "no"}>
          {answer.results?.length ? (
            <p class="fit-verdict">
              <Icon name={fits ? "Succeeded" : "Failed"} /> {fits ? t("fit.yes") : t("fit.no")}
            </p>
          ) : null}
          <pre class="code small" tabIndex={0} aria-label={t("fit.title")}>
            {answer.text}
          </pre>
          {answer.notes?.length ? <Notice tone="warning">{answer.notes.join(" ")}</Notice> : null}
        </div>
      )}
    </section>
  );
}
