{{- /* Made by hack/manifests.py from gangline.install: do not edit. */ -}}
{{- define "gangline.name" -}}
{{- default "gangline" .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "gangline.labels" -}}
app.kubernetes.io/name: {{ include "gangline.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gangline
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- if eq .Release.Service "Helm" }}
helm.sh/chart: {{ printf "gangline-%s" .Chart.AppVersion | quote }}
{{- end }}
{{- end }}

{{- define "gangline.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- if contains (include "gangline.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gangline.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gangline.operator.fullname" -}}
{{- printf "%s-operator" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator.serviceAccountName" -}}
{{- default (include "gangline.operator.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gangline.operator.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: operator
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.scheduler.fullname" -}}
{{- printf "%s-scheduler" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.scheduler.serviceAccountName" -}}
{{- default (include "gangline.scheduler.fullname" .) .Values.scheduler.serviceAccount.name -}}
{{- end -}}

{{- define "gangline.scheduler.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: scheduler
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.operator-mpi.fullname" -}}
{{- printf "%s-operator-mpi" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-mpi-account.fullname" -}}
{{- printf "%s-operator-mpi-account" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-mpi-v2beta1.fullname" -}}
{{- printf "%s-operator-mpi-v2beta1" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-hang-watch.fullname" -}}
{{- printf "%s-operator-hang-watch" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-hang-stacks.fullname" -}}
{{- printf "%s-operator-hang-stacks" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-diagnosis.fullname" -}}
{{- printf "%s-operator-diagnosis" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-volcano.fullname" -}}
{{- printf "%s-operator-volcano" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-scheduler-plugins.fullname" -}}
{{- printf "%s-operator-scheduler-plugins" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-kubernetes.fullname" -}}
{{- printf "%s-operator-kubernetes" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-lease.fullname" -}}
{{- printf "%s-operator-lease" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-notifications.fullname" -}}
{{- printf "%s-operator-notifications" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-install-crds.fullname" -}}
{{- printf "%s-operator-install-crds" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-progress.fullname" -}}
{{- printf "%s-operator-progress" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.operator-diagnosis-nodes.fullname" -}}
{{- printf "%s-operator-diagnosis-nodes" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.edit.fullname" -}}
{{- printf "%s-edit" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.view.fullname" -}}
{{- printf "%s-view" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.scheduler-read.fullname" -}}
{{- printf "%s-scheduler-read" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.scheduler-lease.fullname" -}}
{{- printf "%s-scheduler-lease" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.metrics-auth.fullname" -}}
{{- printf "%s-metrics-auth" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.monitoring.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: monitoring
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.metrics-reader.fullname" -}}
{{- printf "%s-metrics-reader" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.network.fullname" -}}
{{- printf "%s-network" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.network.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: network
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gangline.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "gangline.operator.selectorLabels" -}}
{{- include "gangline.selectorLabels" . | nindent 0 }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "gangline.image" -}}
{{- if .Values.image.registry -}}
{{- printf "%s/" .Values.image.registry -}}
{{- end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "@%s" .Values.image.digest -}}
{{- else -}}
{{- printf ":%s" (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gangline.progress.fullname" -}}
{{- printf "%s-progress" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.progress.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: progress
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.scheduler.selectorLabels" -}}
{{- include "gangline.selectorLabels" . | nindent 0 }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "gangline.dashboard.fullname" -}}
{{- printf "%s-dashboard" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.dashboard.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: dashboard
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.dashboard-history.fullname" -}}
{{- printf "%s-dashboard-history" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.dashboard.selectorLabels" -}}
{{- include "gangline.selectorLabels" . | nindent 0 }}
app.kubernetes.io/component: dashboard
{{- end }}

{{- define "gangline.metrics.fullname" -}}
{{- printf "%s-metrics" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.alerts.fullname" -}}
{{- printf "%s-alerts" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.board.fullname" -}}
{{- printf "%s-board" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.test.fullname" -}}
{{- printf "%s-test" (include "gangline.fullname" .) -}}
{{- end -}}

{{- define "gangline.test.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: test
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "gangline.crds.labels" -}}
{{- include "gangline.labels" . | nindent 0 }}
app.kubernetes.io/component: crds
{{- with omit .Values.extraLabels "app.kubernetes.io/instance" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "helm.sh/chart" "app.kubernetes.io/component" }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}
