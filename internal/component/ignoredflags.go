package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// addMasterFlag binds --master, which upstream's controller manager and scheduler
// share.
func addMasterFlag(fs *pflag.FlagSet, master *string) {
	fs.StringVar(master, "master", *master, "URL of the API server, such as https://10.0.0.1:6443 (default: the one in the kubeconfig)")
}

// warningsOf returns a warning for each flag that was given.
func warningsOf(ignored *pflag.FlagSet) (warnings []string) {
	ignored.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			warnings = append(warnings, "--"+f.Name+" "+f.Usage)
		}
	})
	return warnings
}

// ignoredLogFlags are the flags of the log that have no effect: upstream's, and those of
// glog, which its components had.
func ignoredLogFlags() *pflag.FlagSet {
	fs := base.IgnoredLogFlags()
	const logs = "has no effect: log lines go to standard error, see --logging-format and --v"
	for _, name := range []string{"log-backtrace-at", "log-dir", "log-file", "stderrthreshold"} {
		fs.String(name, "", logs)
	}
	for _, name := range []string{"add-dir-header", "alsologtostderr", "logtostderr", "one-output", "skip-headers", "skip-log-headers"} {
		fs.Bool(name, false, logs)
	}
	fs.Int("log-file-max-size", 0, logs)
	flagvalue.Is(fs, flagvalue.Path, "log-dir", "log-file")
	flagvalue.OneOf(fs, "stderrthreshold", "0", "1", "2", "3", "INFO", "WARNING", "ERROR", "FATAL")
	return fs
}

// ignoredComponentFlags are the flags without effect that upstream's controller
// manager and scheduler share.
func ignoredComponentFlags() *pflag.FlagSet {
	fs := ignoredLogFlags()
	const (
		asKubeconfig = "has no effect: the cluster and identity of --kubeconfig are used"
		fixed        = "has no effect: the server's settings are fixed"
		measures     = "has no effect: all metrics are served"
		client       = "has no effect: the client has no such limit"
		insecure     = "has no effect: there is no insecure port"
		version      = "has no effect: the version is fixed"
	)
	for name, why := range map[string]string{
		"authentication-kubeconfig": asKubeconfig, "authorization-kubeconfig": asKubeconfig, "cert-dir": fixed, "tls-min-version": fixed,
		"show-hidden-metrics-for-version": measures, "allow-metric-labels-manifest": measures,
		"kube-api-content-type": client, "requestheader-client-ca-file": fixed, "address": insecure, "emulated-version": version, "min-compatibility-version": version,
	} {
		fs.String(name, "", why)
	}
	for name, why := range map[string]string{
		"authentication-skip-lookup": fixed, "authentication-tolerate-lookup-failure": fixed, "permit-address-sharing": fixed, "permit-port-sharing": fixed,
		"disable-http2-serving": fixed, "contention-profiling": fixed,
		"emulation-forward-compatibility": version,
	} {
		fs.Bool(name, false, why)
	}
	for name, why := range map[string]string{
		"authentication-token-webhook-cache-ttl": fixed, "authorization-webhook-cache-authorized-ttl": fixed, "authorization-webhook-cache-unauthorized-ttl": fixed,
	} {
		fs.Duration(name, 0, why)
	}
	for name, why := range map[string]string{
		"tls-cipher-suites": fixed, "tls-sni-cert-key": fixed, "requestheader-allowed-names": fixed, "requestheader-extra-headers-prefix": fixed,
		"requestheader-group-headers": fixed, "requestheader-uid-headers": fixed, "requestheader-username-headers": fixed,
		"disabled-metrics": measures, "allow-metric-labels": measures,
	} {
		fs.StringSlice(name, nil, why)
	}
	fs.IntSlice("tls-curve-preferences", nil, fixed)
	for name, why := range map[string]string{"http2-max-streams-per-connection": fixed, "port": insecure, "kube-api-burst": client} {
		fs.Int(name, 0, why)
	}
	fs.Float32("kube-api-qps", 0, client)
	flagvalue.Is(fs, flagvalue.File, "requestheader-client-ca-file")
	flagvalue.Is(fs, flagvalue.Path, "authentication-kubeconfig", "authorization-kubeconfig", "cert-dir")
	flagvalue.Is(fs, flagvalue.KeyPair, "tls-sni-cert-key")
	flagvalue.Is(fs, flagvalue.Address, "address")
	flagvalue.Is(fs, flagvalue.Number, "kube-api-qps")
	flagvalue.Is(fs, flagvalue.Header, "requestheader-extra-headers-prefix", "requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers")
	return fs
}

// ignoredControllerFlags are the flags of upstream's controller manager that have
// no effect. They are accepted, so that command lines for upstream work.
func ignoredControllerFlags() *pflag.FlagSet {
	fs := ignoredComponentFlags()
	const (
		cloud    = "has no effect: no cloud provider is built in"
		watching = "has no effect: controllers act when objects change"
	)
	for name, why := range map[string]string{
		"cluster-name": cloud, "cloud-config": cloud, "external-cloud-volume-plugin": cloud, "leader-migration-config": "has no effect: no controller migrates",
		"flex-volume-plugin-dir": "has no effect: there are no FlexVolumes",
	} {
		fs.String(name, "", why)
	}
	for name, why := range map[string]string{
		"allow-untagged-cloud": cloud, "configure-cloud-routes": cloud, "enable-leader-migration": "has no effect: no controller migrates",
		"enable-dynamic-provisioning":     "has no effect: external provisioners make volumes",
		"enable-hostpath-provisioner":     "has no effect: the StorageClass standard makes volumes on the disk of a node",
		"use-service-account-credentials": "has no effect: each controller always has credentials of its own",
	} {
		fs.Bool(name, false, why)
	}
	for name, why := range map[string]string{
		"pvclaimbinder-sync-period": watching, "min-resync-period": watching, "namespace-sync-period": watching, "node-monitor-period": watching,
		"controller-start-interval": "has no effect: controllers start together", "controller-shutdown-timeout": "has no effect: controllers end together",
		"route-reconciliation-period": cloud, "node-sync-period": cloud,
	} {
		fs.Duration(name, 0, why)
	}
	for name, why := range map[string]string{
		"concurrent-service-syncs": cloud,
	} {
		fs.Int(name, 0, why)
	}
	flagvalue.Is(fs, flagvalue.Path, "cloud-config", "flex-volume-plugin-dir", "leader-migration-config")
	return fs
}
