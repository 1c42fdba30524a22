package component

import "slices"

// kubeletFields are all flags that set the KubeletConfiguration.
func kubeletFields() []fieldFlag {
	return slices.Concat(accessFields(), nodeFields(), resourceFields())
}

// accessFields are the flags of the kubelet's server, authentication,
// authorization and client of the API server.
func accessFields() []fieldFlag {
	return []fieldFlag{
		{"address", "address", textField, "IP address to serve on"},
		{"port", "port", numberField, "port of the HTTPS server"},
		{"healthz-port", "healthzPort", numberField, "port of /healthz; 0 disables it"},
		{"client-ca-file", "authentication.x509.clientCAFile", textField, "bundle of certificate authorities for client certificates (default: the authority in --kubeconfig)"},
		{"tls-cert-file", "tlsCertFile", textField, "serving certificate (default: a self-signed one)"},
		{"tls-private-key-file", "tlsPrivateKeyFile", textField, "private key of --tls-cert-file"},
		{"authorization-mode", "authorization.mode", textField, "authorization mode: Webhook (SubjectAccessReviews of the API server) or AlwaysAllow"},
		{"anonymous-auth", "authentication.anonymous.enabled", boolField, "accept requests without credentials as system:anonymous"},
		{"authentication-token-webhook", "authentication.webhook.enabled", boolField, "authenticate bearer tokens with TokenReviews of the API server"},
		{"authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL", durationField, "how long responses of the token authenticator are cached"},
		{"authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL", durationField, "how long authorized responses of the webhook authorizer are cached"},
		{"authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL", durationField, "how long unauthorized responses of the webhook authorizer are cached"},
		{"rotate-certificates", "rotateCertificates", boolField, "request a new client certificate from the API server before the current one expires"},
		{"rotate-server-certificates", "serverTLSBootstrap", boolField, "request the serving certificate from the API server, and a new one before it expires"},
		{"tls-cipher-suites", "tlsCipherSuites", listField, "cipher suites for TLS versions below 1.3 (default: Go's)"},
		{"tls-min-version", "tlsMinVersion", textField, "minimum TLS version, such as VersionTLS12"},
		{"read-only-port", "readOnlyPort", numberField, "0; another port is refused: nothing is served without authentication and authorization"},
		{"enable-server", "enableServer", boolField, "run the kubelet's server"},
		{"enable-debugging-handlers", "enableDebuggingHandlers", boolField, "serve logs, exec, attach, port-forward and run"},
		{"contention-profiling", "enableContentionProfiling", boolField, refused + "the kubelet records no blocking"},
		{"healthz-bind-address", "healthzBindAddress", textField, "IP address of /healthz"},
		{"streaming-connection-idle-timeout", "streamingConnectionIdleTimeout", durationField, "maximum time that a streaming connection may be idle before it is closed"},
		{"kube-api-qps", "kubeAPIQPS", numberField, refused + "the client has no such limit"},
		{"kube-api-burst", "kubeAPIBurst", numberField, refused + "the client has no such limit"},
		{"kube-api-content-type", "contentType", textField, refused + "the client uses protobuf"},
		{"logging-format", "logging.format", textField, "form of the log lines: text or json"},
	}
}

// nodeFields are the other flags of the configuration, about the node.
func nodeFields() []fieldFlag {
	return []fieldFlag{
		{"container-runtime-endpoint", "containerRuntimeEndpoint", textField, "endpoint of the container runtime (CRI)"},
		{"image-service-endpoint", "imageServiceEndpoint", textField, "endpoint of the CRI image service (default: --container-runtime-endpoint)"},
		{"pod-manifest-path", "staticPodPath", textField, "directory of static pod manifests"},
		{"manifest-url", "staticPodURL", textField, "URL of static pod manifests"},
		{"manifest-url-header", "staticPodURLHeader", headerField, "HTTP headers of requests to --manifest-url, such as name:value,name:value"},
		{"file-check-frequency", "fileCheckFrequency", durationField, "interval at which --pod-manifest-path is read"},
		{"http-check-frequency", "httpCheckFrequency", durationField, "interval at which --manifest-url is read"},
		{"cluster-dns", "clusterDNS", listField, "IP addresses of the cluster's DNS servers"},
		{"cluster-domain", "clusterDomain", textField, "DNS domain of the cluster"},
		{"pod-cidr", "podCIDR", textField, "CIDR of pod IPs, used only without an API server"},
		{"max-pods", "maxPods", numberField, "maximum number of pods on this node"},
		{"cgroup-driver", "cgroupDriver", textField, "cgroup driver if the container runtime does not say which one it uses: cgroupfs; the kubelet refuses to start with systemd"},
		{"cgroup-root", "cgroupRoot", textField, "root cgroup of pods"},
		{"fail-swap-on", "failSwapOn", boolField, "fail to start if swap is enabled on the node"},
		{"resolv-conf", "resolvConf", textField, "resolver configuration file of pods with the DNS policy Default"},
		{"register-node", "registerNode", boolField, "register the node with the API server"},
		{"node-status-update-frequency", "nodeStatusUpdateFrequency", durationField, "interval at which node status is computed"},
		{"cgroups-per-qos", "cgroupsPerQOS", boolField, "create a hierarchy of QoS and pod cgroups"},
		{"cpu-cfs-quota-period", "cpuCFSQuotaPeriod", durationField, "CPU CFS quota period, cpu.cfs_period_us, of 1ms to 1s"},
		{"cpu-manager-policy", "cpuManagerPolicy", textField, "CPU manager policy: none or static"},
		{"cpu-manager-policy-options", "cpuManagerPolicyOptions", mapField, "options of the CPU manager policy"},
		{"cpu-manager-reconcile-period", "cpuManagerReconcilePeriod", durationField, "interval at which the CPU manager reconciles the cpusets of containers"},
		{"enable-controller-attach-detach", "enableControllerAttachDetach", boolField, "let the attach/detach controller attach and detach volumes of this node; false is refused"},
		{"enforce-node-allocatable", "enforceNodeAllocatable", listField, "levels of node allocatable enforcement: pods, system-reserved, kube-reserved, or none"},
		{"eviction-minimum-reclaim", "evictionMinimumReclaim", mapField, "minimum reclaim of an eviction, such as imagefs.available=2Gi"},
		{"fail-cgroupv1", "failCgroupV1", boolField, "fail to start on a host with cgroup v1"},
		{"feature-gates", "featureGates", boolMapField, "feature gates to enable or disable, such as NAME=true"},
		{"hairpin-mode", "hairpinMode", textField, "has no effect: the runtime's network plugin decides"},
		{"kernel-memcg-notification", "kernelMemcgNotification", boolField, refused + "eviction thresholds are compared every ten seconds"},
		{"kube-reserved-cgroup", "kubeReservedCgroup", textField, "absolute name of the cgroup that --kube-reserved limits"},
		{"system-reserved-cgroup", "systemReservedCgroup", textField, "absolute name of the cgroup that --system-reserved limits"},
		{"kubelet-cgroups", "kubeletCgroups", textField, refused + "the kubelet stays in the cgroup in which it is started"},
		{"system-cgroups", "systemCgroups", textField, refused + "the kubelet moves no processes of the system"},
		{"make-iptables-util-chains", "makeIPTablesUtilChains", boolField, "false; true is refused: the kubelet makes no chains"},
		{"max-open-files", "maxOpenFiles", number64Field, refused + "the limit is that of the service, such as systemd's LimitNOFILE"},
		{"memory-manager-policy", "memoryManagerPolicy", textField, "memory manager policy: None or Static"},
		{"node-status-max-images", "nodeStatusMaxImages", numberField, "maximum number of images in the node status; -1 means no limit"},
		{"oom-score-adj", "oomScoreAdj", numberField, "OOM score adjustment of the kubelet's process, -1000 to 1000"},
		{"pods-per-core", "podsPerCore", numberField, "maximum number of pods per CPU core; 0 means no limit"},
		{"protect-kernel-defaults", "protectKernelDefaults", boolField, refused + "the kubelet does not compare settings of the kernel"},
		{"provider-id", "providerID", textField, "unique identifier of the node in the cloud provider's database"},
		{"qos-reserved", "qosReserved", mapField, refused + "requests of QoS classes are not reserved"},
		{"reserved-cpus", "reservedSystemCPUs", textField, "CPUs reserved for the system and Kubernetes, such as 0-1"},
		{"runonce", "runOnce", boolField, refused + "the kubelet runs until it is stopped"},
		{"runtime-request-timeout", "runtimeRequestTimeout", durationField, "timeout of requests to the container runtime, except long-running ones such as pull and exec"},
		{"seccomp-default", "seccompDefault", boolField, "use the seccomp profile RuntimeDefault for containers without a seccomp profile"},
		{"sync-frequency", "syncFrequency", durationField, "interval at which pods are resynced"},
		{"topology-manager-policy", "topologyManagerPolicy", textField, "topology manager policy: none, best-effort, restricted or single-numa-node"},
		{"topology-manager-policy-options", "topologyManagerPolicyOptions", mapField, "options of the topology manager policy"},
		{"topology-manager-scope", "topologyManagerScope", textField, "scope of the topology manager: container or pod"},
		{"volume-plugin-dir", "volumePluginDir", textField, refused + "there are no FlexVolume plugins"},
		{"volume-stats-agg-period", "volumeStatsAggPeriod", durationField, refused + "the interval cannot be changed"},
	}
}

// resourceFields are the flags about the resources of pods, images and logs.
func resourceFields() []fieldFlag {
	return []fieldFlag{
		{"eviction-hard", "evictionHard", thresholdField, "hard eviction thresholds, such as memory.available<100Mi,nodefs.available<10%"},
		{"eviction-soft", "evictionSoft", thresholdField, "soft eviction thresholds, such as memory.available<1.5Gi, with grace periods in --eviction-soft-grace-period"},
		{"eviction-soft-grace-period", "evictionSoftGracePeriod", mapField, "grace periods of soft eviction thresholds, such as memory.available=1m30s"},
		{"eviction-max-pod-grace-period", "evictionMaxPodGracePeriod", numberField, "maximum grace period, in seconds, of pods evicted by a soft threshold"},
		{"eviction-pressure-transition-period", "evictionPressureTransitionPeriod", durationField, "how long the kubelet waits before it ends an eviction pressure condition"},
		{"system-reserved", "systemReserved", mapField, "resources reserved for system daemons, such as cpu=200m,memory=500Mi"},
		{"kube-reserved", "kubeReserved", mapField, "resources reserved for Kubernetes components, such as cpu=200m,memory=500Mi"},
		{"local-storage-capacity-isolation", "localStorageCapacityIsolation", boolField, "enforce requests and limits of local ephemeral storage"},
		{"pod-max-pids", "podPidsLimit", number64Field, "maximum number of processes per pod; -1 means the node's limit"},
		{"cpu-cfs-quota", "cpuCFSQuota", boolField, "enforce CPU limits with CFS quotas"},
		{"allowed-unsafe-sysctls", "allowedUnsafeSysctls", listField, "unsafe sysctls, or patterns of them that end in *, that pods may set"},
		{"image-gc-high-threshold", "imageGCHighThresholdPercent", numberField, "disk usage, in percent, that starts image garbage collection; 100 disables it"},
		{"image-gc-low-threshold", "imageGCLowThresholdPercent", numberField, "disk usage, in percent, at which image garbage collection stops"},
		{"minimum-image-ttl-duration", "imageMinimumGCAge", durationField, "minimum age of an unused image before it is garbage collected"},
		{"serialize-image-pulls", "serializeImagePulls", boolField, "pull one image at a time"},
		{"registry-qps", "registryPullQPS", numberField, "maximum image pulls per second; 0 means no limit"},
		{"registry-burst", "registryBurst", numberField, "burst of image pulls allowed above --registry-qps"},
		{"event-qps", "eventRecordQPS", numberField, "maximum events per second; 0 means no limit"},
		{"event-burst", "eventBurst", numberField, "burst of events allowed above --event-qps"},
		{"container-log-max-size", "containerLogMaxSize", textField, "maximum size of a container log file before it is rotated, such as 10Mi"},
		{"container-log-max-files", "containerLogMaxFiles", numberField, "maximum number of log files per container"},
	}
}
