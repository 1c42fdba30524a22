package aggregator

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-io/coracle/internal/apiserver/bootstrap"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// managedLabel says who keeps an APIService: this server from its start on
// only, or all the time. Those without it are their makers' own.
const (
	managedLabel   = "kube-aggregator.kubernetes.io/automanaged"
	managedOnStart = "onstart"
	managedAlways  = "true"
)

// change is something to do to a registered APIService.
type change struct {
	create *apiregistrationv1.APIService
	update *apiregistrationv1.APIService
	delete bool
}

// decide returns what is to be done so that there is an APIService for each
// group version of custom resources and, if starting, of the built-in ones.
// A deleted one is made again, except for the built-in ones, which stay away
// until the next start.
func decide(all map[string]*apiregistrationv1.APIService, builtIn, custom resource.GroupVersions, starting bool) map[string]change {
	changes := map[string]change{}
	wanted := map[string]bool{}
	want := func(gv schema.GroupVersion, p resource.Priority, managed string) {
		name := gv.Version + "." + gv.Group
		wanted[name] = true
		spec := apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version}
		have := all[name]
		switch {
		case have == nil && (starting || managed == managedAlways):
			changes[name] = change{create: &apiregistrationv1.APIService{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{managedLabel: managed}}, Spec: spec,
			}}
		case have != nil && have.Labels[managedLabel] == managedAlways && !sameSpec(have, spec):
			next := have.DeepCopy()
			next.Spec = spec
			changes[name] = change{update: next}
		}
	}
	for gv, p := range custom {
		want(gv, p, managedAlways)
	}
	for gv, p := range builtIn {
		if gv.Group != apiregistrationv1.GroupName {
			want(gv, p, managedOnStart)
		}
	}
	for name, have := range all {
		managed := have.Labels[managedLabel]
		if !wanted[name] && (managed == managedAlways || managed == managedOnStart && starting) {
			changes[name] = change{delete: true}
		}
	}
	return changes
}

func sameSpec(have *apiregistrationv1.APIService, spec apiregistrationv1.APIServiceSpec) bool {
	return have.Spec.Service == nil && have.Spec.Group == spec.Group && have.Spec.Version == spec.Version &&
		have.Spec.GroupPriorityMinimum == spec.GroupPriorityMinimum && have.Spec.VersionPriority == spec.VersionPriority
}

// register does what decide says, and says whether all of it could be done.
// Its writes come back as events.
func (s *Server) register(ctx context.Context, entries map[string]*watchcache.Entry) (done bool) {
	done = true
	all := make(map[string]*apiregistrationv1.APIService, len(entries))
	for name, e := range entries {
		all[name] = e.Object.(*apiregistrationv1.APIService)
	}
	w := bootstrap.CacheWriter{Cache: s.Cache, Clock: s.Clock}
	for name, c := range decide(all, s.builtIn, *s.local.Load(), s.starting) {
		var err error
		switch {
		case c.create != nil:
			err = w.Create(ctx, objects.APIServices, c.create)
		case c.update != nil:
			err = w.Update(ctx, objects.APIServices, c.update, all[name])
		case c.delete:
			err = w.Delete(ctx, objects.APIServices, all[name])
		}
		done = done && err == nil
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot register a group version yet", "apiService", name)
			s.retry(ctx)
		}
	}
	s.starting = false
	return done
}

const retryAfter = time.Second

// retry looks at everything again after a failed write.
func (s *Server) retry(ctx context.Context) {
	s.wait.Go(ctx, func() {
		select {
		case <-ctx.Done():
		case <-s.Clock.After(retryAfter):
			s.again()
		}
	})
}
