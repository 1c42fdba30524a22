package apiserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// IgnoredOptions are upstream's flags that have no effect on this server. They
// are accepted and validated, so that command lines for upstream work.
type IgnoredOptions struct {
	DeleteCollectionWorkers int
	AggregatorRouting       bool
	WatchCache              bool
	WatchCacheSizes         []string
	DefaultWatchCacheSize   int
	KubeletTimeout          time.Duration
	SendRetryAfter          bool
}

func newIgnoredOptions() IgnoredOptions {
	return IgnoredOptions{DeleteCollectionWorkers: 1, WatchCache: true, DefaultWatchCacheSize: 100, KubeletTimeout: 5 * time.Second}
}

func (o *IgnoredOptions) addFlags(fs *pflag.FlagSet) {
	const ignored = "has no effect: "
	fs.IntVar(&o.DeleteCollectionWorkers, "delete-collection-workers", o.DeleteCollectionWorkers, ignored+"a collection is deleted by 16 at a time")
	fs.BoolVar(&o.AggregatorRouting, "enable-aggregator-routing", o.AggregatorRouting, ignored+"how aggregated API servers are reached does not depend on it")
	fs.BoolVar(&o.WatchCache, "watch-cache", o.WatchCache, ignored+"reads and watches are always answered from the cache where they may be")
	fs.StringSliceVar(&o.WatchCacheSizes, "watch-cache-sizes", o.WatchCacheSizes, ignored+"the cache sizes itself; as resource[.group]#size")
	fs.IntVar(&o.DefaultWatchCacheSize, "default-watch-cache-size", o.DefaultWatchCacheSize, ignored+"the cache sizes itself")
	fs.DurationVar(&o.KubeletTimeout, "kubelet-timeout", o.KubeletTimeout, ignored+"the client's request bounds the one to the kubelet")
	fs.BoolVar(&o.SendRetryAfter, "shutdown-send-retry-after", o.SendRetryAfter, ignored+"a server that shuts down accepts no new connections")
}

func (o *IgnoredOptions) validate() []error {
	var errs []error
	if o.DeleteCollectionWorkers < 1 {
		errs = append(errs, fmt.Errorf("--delete-collection-workers=%d: want at least 1", o.DeleteCollectionWorkers))
	}
	if o.DefaultWatchCacheSize < 0 {
		errs = append(errs, errors.New("--default-watch-cache-size must not be negative"))
	}
	if o.KubeletTimeout < 0 {
		errs = append(errs, fmt.Errorf("--kubelet-timeout=%s: can not be negative", o.KubeletTimeout))
	}
	for _, setting := range o.WatchCacheSizes {
		resource, size, ok := strings.Cut(setting, "#")
		n, err := strconv.Atoi(size)
		if !ok || resource == "" || err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("--watch-cache-sizes=%s: want resource[.group]#size with a size of 0 or more", setting))
		}
	}
	return errs
}
