package apiserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// IgnoredFlags are upstream's flags for what is not different in this server.
// They are accepted, so that command lines written for upstream work, and
// their values are checked; that is all.
type IgnoredFlags struct {
	DeleteCollectionWorkers int
	GarbageCollector        bool
	AggregatorRouting       bool
	WatchCache              bool
	WatchCacheSizes         []string
	DefaultWatchCacheSize   int
	KubeletTimeout          time.Duration
	SendRetryAfter          bool
}

func newIgnoredFlags() IgnoredFlags {
	return IgnoredFlags{DeleteCollectionWorkers: 1, GarbageCollector: true, WatchCache: true, DefaultWatchCacheSize: 100, KubeletTimeout: 5 * time.Second}
}

func (f *IgnoredFlags) addFlags(fs *pflag.FlagSet) {
	const ignored = "has no effect: "
	fs.IntVar(&f.DeleteCollectionWorkers, "delete-collection-workers", f.DeleteCollectionWorkers, ignored+"collections are deleted one object after the other")
	fs.BoolVar(&f.GarbageCollector, "enable-garbage-collector", f.GarbageCollector, ignored+"objects always wait for the garbage collector where their deletion asks for it")
	fs.BoolVar(&f.AggregatorRouting, "enable-aggregator-routing", f.AggregatorRouting, ignored+"how aggregated API servers are reached does not depend on it")
	fs.BoolVar(&f.WatchCache, "watch-cache", f.WatchCache, ignored+"reads and watches are always answered from the cache where they may be")
	fs.StringSliceVar(&f.WatchCacheSizes, "watch-cache-sizes", f.WatchCacheSizes, ignored+"the cache sizes itself; as resource[.group]#size")
	fs.IntVar(&f.DefaultWatchCacheSize, "default-watch-cache-size", f.DefaultWatchCacheSize, ignored+"the cache sizes itself")
	fs.DurationVar(&f.KubeletTimeout, "kubelet-timeout", f.KubeletTimeout, ignored+"requests to kubelets end with those that cause them")
	fs.BoolVar(&f.SendRetryAfter, "shutdown-send-retry-after", f.SendRetryAfter, ignored+"a server that ends takes no new connections")
}

func (f *IgnoredFlags) validate() []error {
	var errs []error
	if f.DeleteCollectionWorkers < 1 {
		errs = append(errs, fmt.Errorf("--delete-collection-workers=%d: want at least 1", f.DeleteCollectionWorkers))
	}
	if f.DefaultWatchCacheSize < 0 {
		errs = append(errs, errors.New("--default-watch-cache-size must not be negative"))
	}
	if f.KubeletTimeout < 0 {
		errs = append(errs, fmt.Errorf("--kubelet-timeout=%s: can not be negative", f.KubeletTimeout))
	}
	for _, setting := range f.WatchCacheSizes {
		resource, size, ok := strings.Cut(setting, "#")
		n, err := strconv.Atoi(size)
		if !ok || resource == "" || err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("--watch-cache-sizes=%s: want resource[.group]#size with a size of 0 or more", setting))
		}
	}
	return errs
}
