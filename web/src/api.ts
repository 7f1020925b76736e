/** What the server answers (docs/dashboard.md). Moments are ISO texts or seconds since 1970: read them with `moment`. */

export type Moment = string | number;

export interface Refusal {
  resource: string;
  namespace?: string | null;
  message: string;
}

export interface Session {
  version: string;
  user: string;
  local: boolean;
  namespaces: string[] | null;
  canSeeAllNamespaces: boolean;
  /** The namespace that a page shows first; empty: all. */
  namespace?: string;
  history: boolean;
  /** What this dashboard can do besides showing: submit, fit. */
  tools?: string[];
  refused: Refusal[];
}

export interface Progress {
  step?: number | null;
  total?: number | null;
  fraction?: number | null;
  etaSeconds?: number | null;
  metrics?: Record<string, number> | { name: string; value: number | string }[] | null;
}

export interface JobRow {
  id: string;
  namespace: string;
  plural: string;
  kind: string;
  name: string;
  uid: string;
  state: string;
  stateText?: string | null;
  reason?: string | null;
  progress: Progress | null;
  restarts: number;
  ready: number;
  replicas: number;
  queue?: string | null;
  gangPhase?: string | null;
  placeInLine?: number | null;
  createdAt: Moment;
  startedAt?: Moment | null;
  endedAt?: Moment | null;
  deleted?: boolean;
}

export interface QueueRow {
  name: string;
  weight?: number | null;
  deserved: Record<string, string>;
  held: Record<string, string>;
  pending: number;
  running: number;
}

export interface BoardSnapshot {
  rows: JobRow[];
  queues: QueueRow[];
  refused: Refusal[];
}

export interface BoardPatch {
  upsert?: JobRow[];
  remove?: string[];
  queues?: QueueRow[];
  refused?: Refusal[];
}

export type SpanState = "waiting" | "starting" | "running" | "not-ready" | "succeeded" | "failed" | "stopped" | "lost";

export interface Span {
  state: string;
  start: Moment;
  end: Moment | null;
  attempt?: number | null;
  node?: string | null;
  text?: string | null;
}

export interface ReplicaRow {
  name: string;
  type: string;
  index: number;
  spans: Span[];
}

export interface Mark {
  kind: string;
  at: Moment;
  /** The name of a replica; null for the job as a whole. */
  row: string | null;
  text: string;
  cause?: boolean;
}

export interface FailureLink {
  causeMark: number;
  consequenceMarks: number[];
}

export interface TeamTimeline {
  start: Moment;
  end: Moment | null;
  rows: ReplicaRow[];
  marks: Mark[];
  links: FailureLink[];
  /** Conditions of the job. */
  phases: Span[];
  /** Phases of its gang. */
  gangPhases?: Span[];
}

export interface Condition {
  type: string;
  status: string;
  reason?: string | null;
  message?: string | null;
  at?: Moment | null;
}

export interface PodRow {
  name: string;
  uid?: string;
  replica: string;
  type?: string;
  index?: number;
  state: string;
  ready: boolean;
  reason: string;
  node: string;
  restarts: number;
  /** How its training container last exited; empty if it never did. */
  exit: string;
  container?: string;
  createdAt?: Moment | null;
  startedAt?: Moment | null;
  progress?: Progress | null;
}

export interface EventRow {
  at: Moment | null;
  type: string;
  reason: string;
  message: string;
  object?: string | null;
  count?: number | null;
}

export interface Allowed {
  suspend?: boolean;
  resume?: boolean;
  scale?: boolean;
  restart?: boolean;
  delete?: boolean;
}

export interface JobDetail {
  row: JobRow;
  timeline: TeamTimeline;
  conditions: Condition[];
  pods: PodRow[];
  events: EventRow[];
  yaml: string;
  progress: Progress | null;
  /** Seconds of all replicas by what they did, in the order in which they are shown; empty if there is no ledger. */
  goodput?: Record<string, number>;
  allowed: Allowed;
  recorded?: boolean;
  deleted?: boolean;
  refused?: Refusal[];
}

export interface EvidenceLink {
  kind: "log" | "object";
  pod?: string | null;
  line?: number | string | null;
  path?: string | null;
}

export interface WhyCause {
  cause?: string | null;
  evidence: { text: string; link?: EvidenceLink | null }[];
  next: { text: string; command?: string | null }[];
}

export interface WhyReport extends WhyCause {
  headline: string;
  healthy: boolean;
  /** Further causes. */
  others?: WhyCause[];
  notes?: string[];
  /** What could not be read. */
  unread?: string[];
}

export interface LogLine {
  at: Moment | null;
  replica: string;
  attempt?: number | null;
  text: string;
  repeats?: number | null;
}

export interface LogPage {
  lines: LogLine[];
  cursor?: string | null;
  more?: boolean;
  notRead?: (string | { replica?: string; message?: string })[];
  /** With this, `logs/stream` sends the lines that come after the page. */
  follow?: string;
}

/** Lines that have just been written. */
export interface LogLines {
  lines: LogLine[];
  notRead: string[];
}

export interface CurveMark {
  x: number;
  kind: string;
  text: string;
}

export interface Curve {
  name: string;
  points: [number, number | null][];
  /** Steps that were done again after a restart. */
  repeated?: [number, number | null][];
  marks: CurveMark[];
  prefersLog?: boolean;
  replica?: string;
}

/** What a replica used: moments in seconds, and values. */
export interface ReplicaUsage {
  replica: string;
  points: [number, number][];
}

export interface CurvesAnswer {
  metrics: Curve[];
  usage?: {
    cpu: ReplicaUsage[];
    memory: ReplicaUsage[];
    /** Why there is nothing, or no more than was recorded. */
    note: string;
  } | null;
}

export interface ResourceUse {
  used: number;
  free: number;
  total: number;
}

/** The pods of one job on a node. */
export interface GangOnNode {
  namespace: string;
  job: string;
  pods: number;
}

export interface NodeRow {
  name: string;
  resources: Record<string, ResourceUse>;
  gangs: GangOnNode[];
  ready: boolean;
  /** Whether it takes new pods. */
  schedulable?: boolean;
}

export interface ClusterView {
  nodes: NodeRow[];
  /** What is free on nodes that take pods. */
  holes?: { node: string; free: Record<string, string> }[];
  refused?: Refusal[];
}

export interface FitAnswer {
  text: string;
  results?: { fits?: boolean }[];
  /** What was not looked at. */
  notes?: string[];
}

export interface Trial {
  rank: number | null;
  number: number;
  parameters: Record<string, string>;
  value: number | null;
  metrics: Record<string, number>;
  row: JobRow;
}

export interface Sweep {
  name: string;
  metric: string;
  maximize: boolean;
  parameters: string[];
  /** The ranked ones first. */
  trials: Trial[];
}

export interface SubmitAnswer {
  objects: { kind: string; name: string; namespace?: string | null; result: string }[];
  problems: { line?: number | null; text: string }[];
}

/** The id of a job as a path of the API. */
export function jobPath(id: string): string {
  return `api/jobs/${id.split("/").map(encodeURIComponent).join("/")}`;
}
