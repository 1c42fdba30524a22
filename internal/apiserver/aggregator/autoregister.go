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

// managedLabel says when this server manages an APIService: only when it
// starts, or always. APIServices without the label belong to users.
const (
	managedLabel   = "kube-aggregator.kubernetes.io/automanaged"
	managedOnStart = "onstart"
	managedAlways  = "true"
)

// change is a write to an APIService.
type change struct {
	create *apiregistrationv1.APIService
	update *apiregistrationv1.APIService
	delete bool
}

// decide returns the changes for an APIService for each group version of custom
// resources and, if starting, of built-in ones. A deleted APIService of custom
// resources or of replaceable ones is created again at once, one of other
// built-in resources at the next start. A replaceable group version belongs to
// the user once its APIService names a Service.
func decide(all map[string]*apiregistrationv1.APIService, builtIn, custom resource.GroupVersions, starting bool) map[string]change {
	changes := map[string]change{}
	wanted := map[string]bool{}
	want := func(gv schema.GroupVersion, p resource.Priority, managed string) {
		name := gv.Version + "." + gv.Group
		wanted[name] = true
		spec := apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version}
		have := all[name]
		switch {
		case have != nil && have.Labels[managedLabel] == managedAlways && have.Spec.Service != nil && bootstrap.Replaceable(gv):
			next := have.DeepCopy()
			delete(next.Labels, managedLabel)
			changes[name] = change{update: next}
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
		switch {
		case bootstrap.Replaceable(gv):
			want(gv, p, managedAlways)
		case gv.Group != apiregistrationv1.GroupName:
			want(gv, p, managedOnStart)
		}
	}
	for name, have := range all {
		managed := have.Labels[managedLabel]
		if !wanted[name] && have.Spec.Service == nil && (managed == managedAlways || managed == managedOnStart && starting) {
			changes[name] = change{delete: true}
		}
	}
	return changes
}

func sameSpec(have *apiregistrationv1.APIService, spec apiregistrationv1.APIServiceSpec) bool {
	return have.Spec.Service == nil && have.Spec.Group == spec.Group && have.Spec.Version == spec.Version &&
		have.Spec.GroupPriorityMinimum == spec.GroupPriorityMinimum && have.Spec.VersionPriority == spec.VersionPriority
}

// register applies the changes of decide, and reports whether all succeeded.
// The resulting events cause another sync.
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

// retry syncs again a while after a failed write.
func (s *Server) retry(ctx context.Context) {
	s.wait.Go(ctx, func() {
		select {
		case <-ctx.Done():
		case <-s.Clock.After(retryAfter):
			s.enqueue()
		}
	})
}
