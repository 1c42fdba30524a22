package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// addMasterFlag binds --master, which upstream's controller manager and scheduler
// share.
func addMasterFlag(fs *pflag.FlagSet, master *string) {
	fs.StringVar(master, "master", *master, "URL of the API server, such as https://10.0.0.1:6443 (default: the one in the kubeconfig)")
}

// ignoredComponentFlags are the flags without effect that upstream's controller
// manager and scheduler share.
func ignoredComponentFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	const (
		asKubeconfig = "has no effect: the cluster and identity of --kubeconfig are used"
		fixed        = "has no effect: the server's settings are fixed"
		logs         = "has no effect: the log has one form, see --v"
		measures     = "has no effect: all metrics are served"
		client       = "has no effect: the client has no such limit"
		insecure     = "has no effect: there is no insecure port"
		version      = "has no effect: the version is fixed"
	)
	for name, why := range map[string]string{
		"authentication-kubeconfig": asKubeconfig, "authorization-kubeconfig": asKubeconfig, "cert-dir": fixed, "tls-min-version": fixed,
		"log-backtrace-at": logs, "log-dir": logs, "log-file": logs, "stderrthreshold": logs, // of glog
		"logging-format": logs, "vmodule": logs, "log-json-info-buffer-size": logs, "log-text-info-buffer-size": logs,
		"show-hidden-metrics-for-version": measures, "allow-metric-labels-manifest": measures,
		"kube-api-content-type": client, "requestheader-client-ca-file": fixed, "address": insecure, "emulated-version": version, "min-compatibility-version": version,
	} {
		fs.String(name, "", why)
	}
	for name, why := range map[string]string{
		"authentication-skip-lookup": fixed, "authentication-tolerate-lookup-failure": fixed, "permit-address-sharing": fixed, "permit-port-sharing": fixed,
		"disable-http2-serving": fixed, "contention-profiling": fixed, "log-json-split-stream": logs, "log-text-split-stream": logs,
		"add-dir-header": logs, "alsologtostderr": logs, "logtostderr": logs, "one-output": logs, "skip-headers": logs, "skip-log-headers": logs, // of glog
		"emulation-forward-compatibility": version,
	} {
		fs.Bool(name, false, why)
	}
	for name, why := range map[string]string{
		"authentication-token-webhook-cache-ttl": fixed, "authorization-webhook-cache-authorized-ttl": fixed, "authorization-webhook-cache-unauthorized-ttl": fixed,
		"log-flush-frequency": logs,
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
	for name, why := range map[string]string{"http2-max-streams-per-connection": fixed, "port": insecure, "kube-api-burst": client, "log-file-max-size": logs} {
		fs.Int(name, 0, why)
	}
	fs.Float32("kube-api-qps", 0, client)
	flagvalue.Is(fs, flagvalue.File, "requestheader-client-ca-file")
	flagvalue.Is(fs, flagvalue.Path, "authentication-kubeconfig", "authorization-kubeconfig", "cert-dir", "log-dir", "log-file")
	flagvalue.OneOf(fs, "stderrthreshold", "0", "1", "2", "3", "INFO", "WARNING", "ERROR", "FATAL")
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
