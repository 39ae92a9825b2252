{{- define "sojourn.name" -}}{{ default .Chart.Name .Values.nameOverride | trunc 30 | trimSuffix "-" }}{{- end }}

{{- define "sojourn.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 30 | trimSuffix "-" }}
{{- else if contains (include "sojourn.name" .) .Release.Name }}{{ .Release.Name | trunc 30 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (include "sojourn.name" .) | trunc 30 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "sojourn.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "sojourn.selector" -}}
app.kubernetes.io/name: {{ include "sojourn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sojourn.image" -}}{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}{{- end }}

{{- define "sojourn.tokenSecret" -}}{{ default (printf "%s-token" (include "sojourn.fullname" .)) .Values.token.secret }}{{- end }}

{{- define "sojourn.url" -}}
{{ ternary "https" "http" .Values.tls.enabled }}://{{ include "sojourn.fullname" . }}:{{ .Values.app.service.port }}
{{- end }}

{{/* For every pod: no process runs as root, and the files of the image are read-only. */}}
{{- define "sojourn.podSecurity" -}}
runAsNonRoot: true
runAsUser: 7700
runAsGroup: 7700
fsGroup: 7700
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sojourn.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Settings that are written by name without their prefix. */}}
{{- define "sojourn.env" -}}
{{- range $name, $value := . }}
- {name: SOJOURN_{{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- define "sojourn.check" -}}
{{- if not (or .Values.token.secret .Values.token.value) }}{{ fail "token: give the name of a secret in token.secret, or a long random text in token.value" }}{{ end }}
{{- if and (not .Values.database.secret) (gt (int .Values.app.replicas) 1) }}{{ fail "database: several apps need PostgreSQL; give the name of a secret with its URL in database.secret, or set app.replicas to 1" }}{{ end }}
{{- if and .Values.tls.enabled (not .Values.tls.secret) }}{{ fail "tls: give the name of a secret of type kubernetes.io/tls in tls.secret" }}{{ end }}
{{- if and .Values.tls.clientCA.secret (not .Values.tls.workerSecret) }}{{ fail "tls: apps that want client certificates let no worker in without one; give its secret in tls.workerSecret" }}{{ end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}{{ fail "ingress: give the name under which it is reached in ingress.host" }}{{ end }}
{{- end }}
