package component

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// kubeletIgnored are flags of upstream's kubelet that have no effect or are refused.
type kubeletIgnored struct {
	podInfraContainerImage string
	logFlushFrequency      time.Duration

	cloudProvider          string
	lockFile               string
	exitOnLockContention   bool
	mounterPath            string
	ignoreEviction         bool
	minimumContainerTTL    time.Duration
	deadPerContainer, dead int32
	reservedMemory         []string
	vmodule                string
	splitStream            bool
	infoBufferSize         string
}

func newKubeletIgnored() kubeletIgnored {
	return kubeletIgnored{logFlushFrequency: 5 * time.Second, deadPerContainer: 1, dead: -1, infoBufferSize: "0"}
}

// refused begins the help of a flag whose value, if it is not the default, is an error.
const refused = "is refused: "

func (o *kubeletIgnored) addFlags(fs *pflag.FlagSet) {
	const ignored = "has no effect: "
	fs.StringVar(&o.podInfraContainerImage, "pod-infra-container-image", o.podInfraContainerImage, ignored+"the runtime says which image its sandboxes have")
	fs.DurationVar(&o.logFlushFrequency, "log-flush-frequency", o.logFlushFrequency, ignored+"each log line is written at once")
	fs.StringVar(&o.cloudProvider, "cloud-provider", o.cloudProvider, `"" for none; external `+refused+"nodes are initialized by the kubelet itself")
	fs.StringVar(&o.lockFile, "lock-file", o.lockFile, refused+"the kubelet's port is its lock")
	fs.BoolVar(&o.exitOnLockContention, "exit-on-lock-contention", o.exitOnLockContention, refused+"as --lock-file")
	fs.StringVar(&o.mounterPath, "experimental-mounter-path", o.mounterPath, refused+"the kubelet mounts by system calls")
	fs.BoolVar(&o.ignoreEviction, "experimental-allocatable-ignore-eviction", o.ignoreEviction, refused+"eviction thresholds are always subtracted from what pods may request")
	fs.DurationVar(&o.minimumContainerTTL, "minimum-container-ttl-duration", o.minimumContainerTTL, refused+"use --eviction-hard or --eviction-soft")
	fs.Int32Var(&o.deadPerContainer, "maximum-dead-containers-per-container", o.deadPerContainer, refused+"one former instance of each container is kept")
	fs.Int32Var(&o.dead, "maximum-dead-containers", o.dead, refused+"use --eviction-hard or --eviction-soft")
	fs.StringArrayVar(&o.reservedMemory, "reserved-memory", o.reservedMemory, refused+"use reservedMemory in the file of --config")
	fs.StringVar(&o.vmodule, "vmodule", o.vmodule, refused+"use --v=COMPONENT=LEVEL")
	fs.BoolVar(&o.splitStream, "log-text-split-stream", o.splitStream, refused+"log lines go to standard error")
	fs.StringVar(&o.infoBufferSize, "log-text-info-buffer-size", o.infoBufferSize, refused+"each log line is written at once")
	flagvalue.Is(fs, flagvalue.Path, "experimental-mounter-path")
	flagvalue.Is(fs, flagvalue.Limit, "maximum-dead-containers", "maximum-dead-containers-per-container")
	flagvalue.Is(fs, flagvalue.Quantity, "log-text-info-buffer-size")
	flagvalue.OneOf(fs, "cloud-provider", "", "external")
}

// validate returns errors for the flags that are refused.
func (o *kubeletIgnored) validate() error {
	var errs []error
	for _, f := range []struct {
		flag, why string
		given     bool
	}{
		{"cloud-provider=external", "this kubelet does not wait for a cloud controller manager to initialize its node; leave the flag out", o.cloudProvider == "external"},
		{"lock-file", "the kubelet's port keeps a second kubelet from starting; leave the flag out", o.lockFile != ""},
		{"exit-on-lock-contention", "the kubelet's port keeps a second kubelet from starting; leave the flag out", o.exitOnLockContention},
		{"experimental-mounter-path", "this kubelet mounts by system calls, not by a program", o.mounterPath != ""},
		{"experimental-allocatable-ignore-eviction", "eviction thresholds are always subtracted from what pods may request", o.ignoreEviction},
		{"minimum-container-ttl-duration", "former instances of containers are removed without a delay; use --eviction-hard or --eviction-soft", o.minimumContainerTTL != 0},
		{"maximum-dead-containers-per-container", "one former instance of each container is kept", o.deadPerContainer != 1},
		{"maximum-dead-containers", "one former instance of each container is kept; use --eviction-hard or --eviction-soft", o.dead >= 0},
		{"reserved-memory", "write it as reservedMemory into the file of --config", len(o.reservedMemory) > 0},
		{"vmodule", "log levels are by component here: use --v=COMPONENT=LEVEL", o.vmodule != ""},
		{"log-text-split-stream", "all log lines go to standard error", o.splitStream},
		{"log-text-info-buffer-size", "each log line is written at once", o.infoBufferSize != "" && o.infoBufferSize != "0"},
	} {
		if f.given {
			errs = append(errs, fmt.Errorf("--%s is not supported by this kubelet: %s", f.flag, f.why))
		}
	}
	return errors.Join(errs...)
}
