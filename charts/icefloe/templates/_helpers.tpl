{{- define "icefloe.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "icefloe.labels" -}}
{{ include "icefloe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "icefloe.selector" -}}
app.kubernetes.io/name: icefloe
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "icefloe.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository is required: build the Dockerfile and push it to your registry" $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.digest or image.tag is required" $image.tag }}
{{- end -}}
{{- end -}}

{{- define "icefloe.scheme" -}}
{{- if .Values.tls.existingSecret -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{- define "icefloe.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "icefloe.name" . }}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- /* The chart's own keys; a value that the user gives for one of them is an error. */ -}}
{{- define "icefloe.properties" -}}
{{- $own := dict -}}
{{- $_ := set $own "listeners" (printf "%s://0.0.0.0:%d" (include "icefloe.scheme" .) (int .Values.service.port)) -}}
{{- $_ := set $own "rest.advertised.port" (int .Values.service.port) -}}
{{- $_ := set $own "icefloe.state.dir" "/var/lib/icefloe/state" -}}
{{- $_ := set $own "icefloe.rest.users.file" "/etc/icefloe/users/users.yaml" -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $own "listeners.https.ssl.keystore.location" (printf "/etc/icefloe/tls/%s" .Values.tls.keystoreKey) -}}
{{- $_ := set $own "listeners.https.ssl.client.auth" .Values.tls.clientAuth -}}
{{- if .Values.tls.truststoreKey -}}
{{- $_ := set $own "listeners.https.ssl.truststore.location" (printf "/etc/icefloe/tls/%s" .Values.tls.truststoreKey) -}}
{{- end -}}
{{- else if .Values.tls.allowPlaintext -}}
{{- $_ := set $own "icefloe.rest.plaintext.allowed" "true" -}}
{{- else -}}
{{- fail "tls.existingSecret is required, or tls.allowPlaintext=true where a service mesh encrypts" -}}
{{- end -}}
{{- if not .Values.users.existingSecret -}}
{{- fail "users.existingSecret is required: create a Secret with the key users.yaml" -}}
{{- end -}}
{{- $servers := index .Values.properties "bootstrap.servers" -}}
{{- if and (not $servers) (not .Values.env) (not .Values.envFrom) -}}
{{- fail "properties.bootstrap\\.servers is required, or ICEFLOE_BOOTSTRAP_SERVERS in env" -}}
{{- end -}}
{{- if eq .Values.tls.clientAuth "required" -}}
{{- fail "tls.clientAuth=required would refuse Kubernetes' probes, which have no certificate: use requested" -}}
{{- end -}}
{{- $grace := index .Values.properties "icefloe.drain.grace.ms" | default 30000 | int -}}
{{- if gt (add (div $grace 1000) 10) (int .Values.terminationGracePeriodSeconds) -}}
{{- fail "terminationGracePeriodSeconds must be at least 10 s longer than icefloe.drain.grace.ms" -}}
{{- end -}}
{{- range $key, $value := .Values.properties -}}
{{- if hasKey $own $key -}}
{{- fail (printf "properties.%s is set by the chart: use users, tls, service and state" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := merge $own .Values.properties }}
{{ $key }}={{ $value }}
{{- end -}}
{{- end -}}
