{{- define "hoglab.name" -}}
{{- if contains "hoglab" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-hoglab" (.Release.Name | trunc 33 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{- define "hoglab.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{- /* What tells pods of a role from all others; the argument is a list of the root and the role. */ -}}
{{- define "hoglab.selector" -}}
app.kubernetes.io/name: hoglab
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "hoglab.labels" -}}
{{ include "hoglab.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end -}}

{{- /* Roles that requests of others reach through a Service. */ -}}
{{- define "hoglab.served" -}}
api edge
{{- end -}}

{{- /* What all pods have in common. */ -}}
{{- define "hoglab.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false  # a Service called hoglab would set HOGLAB_PORT
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* What all containers have in common. */ -}}
{{- define "hoglab.container" -}}
image: {{ include "hoglab.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef:
      name: {{ .Values.secretName }}
{{- end -}}

{{- define "hoglab.environment" -}}
- name: HOGLAB_SITE_URL
  value: {{ required "siteUrl is needed: the address under which people and SDKs reach the server" .Values.siteUrl | quote }}
- name: PYTHONDONTWRITEBYTECODE
  value: "1"
{{- end -}}
