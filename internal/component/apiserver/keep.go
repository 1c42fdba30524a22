package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/candidates"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/supervise"
)

// makeDefaults creates the default objects, and waits until the cache shows them:
// the authorizers read it, and components start once the server is ready.
func (a *Server) makeDefaults(ctx context.Context) error {
	source, w := a.defaultsWriter()
	if err := bootstrap.Reconcile(ctx, source, w, a.defaultsOptions()); err != nil {
		return fmt.Errorf("make the default objects: %w", err)
	}
	if _, err := a.storage.cache.Fresh(ctx); err != nil {
		return fmt.Errorf("wait for the default objects: %w", err)
	}
	return nil
}

// untilDefaults creates the default objects. It retries every second until it
// succeeds or ctx ends.
func (a *Server) untilDefaults(ctx context.Context) error {
	const condition, again = "DefaultObjects", time.Second
	for {
		err := a.makeDefaults(ctx)
		supervise.Report(ctx, condition, err)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		klog.FromContext(ctx).Error(err, "The start waits for the default objects", "again", again)
		supervise.Pause(ctx, again)
	}
}

// keepSystem restores required default objects when they are deleted or changed,
// until ctx ends.
func (a *Server) keepSystem(ctx context.Context) error {
	source, w := a.defaultsWriter()
	return bootstrap.MaintainSystem(ctx, source, w, a.defaultsOptions)
}

// electCandidates elects the holders of leases that have candidates, until ctx ends.
func (a *Server) electCandidates(ctx context.Context) error {
	c, err := a.Provider.As("system:apiserver", "system:masters")
	if err != nil {
		return err
	}
	return candidates.Run(ctx, c.Kubernetes)
}

func (a *Server) defaultsWriter() (objects.Source, bootstrap.Writer) {
	return a.storage.objects(), bootstrap.CacheWriter{Cache: a.storage.cache, Clock: clock.RealClock{}}
}

// defaultsOptions returns the options of the default objects, with the current
// authorities.
func (a *Server) defaultsOptions() bootstrap.Options {
	var cidrs []string
	ranges, _ := a.options.Services.Ranges() // Validate has checked them
	for _, r := range ranges {
		cidrs = append(cidrs, r.String())
	}
	headers := map[string][]string{
		"requestheader-allowed-names":        a.identity.frontProxy.AllowedNames,
		"requestheader-username-headers":     a.identity.frontProxy.UsernameHeaders,
		"requestheader-group-headers":        a.identity.frontProxy.GroupHeaders,
		"requestheader-extra-headers-prefix": a.identity.frontProxy.ExtraHeaderPrefixes,
	}
	if uids := a.identity.frontProxy.UIDHeaders; len(uids) > 0 {
		headers["requestheader-uid-headers"] = uids
	}
	return bootstrap.Options{
		ServiceCIDRs: cidrs,
		ClientCA:     a.identity.clientCA.pem(), RequestHeaderCA: a.identity.frontProxyCA.pem(), Now: time.Now(),
		RequestHeaders: headers, Served: a.apis.versions,
	}
}
