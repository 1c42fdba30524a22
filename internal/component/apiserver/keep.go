package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/supervise"
)

// makeDefaults makes the objects that every server starts with.
func (a *Server) makeDefaults(ctx context.Context) error {
	source, w, options := a.defaults()
	if err := bootstrap.Reconcile(ctx, source, w, options); err != nil {
		return fmt.Errorf("make the default objects: %w", err)
	}
	return nil
}

// untilDefaults makes the default objects, and tries again while the store
// refuses them, until ctx ends.
func (a *Server) untilDefaults(ctx context.Context) error {
	const condition, again = "DefaultObjects", time.Second
	for {
		err := a.makeDefaults(ctx)
		supervise.Report(ctx, condition, err)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		klog.FromContext(ctx).Error(err, "The start waits for the default objects", "again", again)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// keepSystem puts back, until ctx ends, what of them the cluster cannot do without.
func (a *Server) keepSystem(ctx context.Context) error {
	source, w, options := a.defaults()
	return bootstrap.KeepSystem(ctx, source, w, options)
}

func (a *Server) defaults() (objects.Source, bootstrap.Writer, bootstrap.Options) {
	return a.storage.objects(), bootstrap.CacheWriter{Cache: a.storage.cache, Clock: clock.RealClock{}}, bootstrap.Options{
		ServiceCIDRs: strings.Split(a.flags.ServiceClusterIPRange, ","),
		ClientCA:     a.identity.clientCA.pem(), RequestHeaderCA: a.identity.frontProxyCA.pem(), Now: time.Now(),
		RequestHeaders: map[string][]string{
			"requestheader-allowed-names":        a.identity.frontProxy.AllowedNames,
			"requestheader-username-headers":     a.identity.frontProxy.UsernameHeaders,
			"requestheader-uid-headers":          a.identity.frontProxy.UIDHeaders,
			"requestheader-group-headers":        a.identity.frontProxy.GroupHeaders,
			"requestheader-extra-headers-prefix": a.identity.frontProxy.ExtraHeaderPrefixes,
		},
		Served: a.apis.versions,
	}
}
