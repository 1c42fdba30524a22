package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/ingress/gateway"
)

// Resources of the Gateway API.
const (
	gatewayClasses  = "gatewayclasses"
	gatewaysOfAPI   = "gateways"
	httpRoutes      = "httproutes"
	grpcRoutes      = "grpcroutes"
	referenceGrants = "referencegrants"
)

// gatewayVersions returns the versions of a resource of the Gateway API that the controller
// reads, the best first.
func gatewayVersions(resource string) []string {
	if resource == referenceGrants {
		return []string{"v1", "v1beta1"}
	}
	return []string{"v1"}
}

// gatewayAPI reads the objects of the Gateway API while its definitions are there, which
// users install. Without them, it watches one definition by its name:
//
//	definition of Gateways ─► the other definitions ─► objects of those that are served, Namespaces
//
// The worker of the controller's queue alone uses it.
type gatewayAPI struct {
	client  *client.Client
	changed func() // asks for a new table

	definitions map[string]cache.Indexer // by resource
	watched     map[string]*watchedResource
	namespaces  cache.Indexer // nil until there are Gateways
	created     types.UID     // the definition for which the GatewayClass was created

	// decoded and former have what objects of informers, which never change, were decoded
	// to: by this call of read, and by the last one.
	decoded, former map[any]any
}

// watchedResource is a resource whose objects are watched.
type watchedResource struct {
	definition types.UID
	version    string
	objects    cache.Indexer
	end        context.CancelFunc
}

func newGatewayAPI(c *client.Client, changed func()) *gatewayAPI {
	return &gatewayAPI{client: c, changed: changed, definitions: map[string]cache.Indexer{}, watched: map[string]*watchedResource{}}
}

// follow watches a resource and asks for a new table with each change.
func (g *gatewayAPI) follow(ctx context.Context, resource schema.GroupVersionResource, selector fields.Selector) (cache.Indexer, cache.DoneChecker, error) {
	informer := g.client.WatchReduced(resource, "", selector, reduce)
	done, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.changed() }, UpdateFunc: func(any, any) { g.changed() }, DeleteFunc: func(any) { g.changed() },
	})
	return informer.GetIndexer(), done, err
}

// followDefinition watches the definition of a resource, if it is not watched yet.
func (g *gatewayAPI) followDefinition(ctx context.Context, resource string) (cache.DoneChecker, error) {
	if g.definitions[resource] != nil {
		return nil, nil
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	indexer, done, err := g.follow(ctx, definitions, fields.OneTermEqualSelector("metadata.name", resource+"."+gateway.Group))
	g.definitions[resource] = indexer
	return done, err
}

// definition is what is used of a CustomResourceDefinition.
type definition struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// served returns the definition of a resource and the version to read. ok is false if it is
// not served.
func (g *gatewayAPI) served(ctx context.Context, resource string) (of types.UID, version string, ok bool) {
	if g.definitions[resource] == nil {
		return "", "", false
	}
	for _, obj := range g.definitions[resource].List() {
		d := decode[definition](ctx, g, obj)
		if d == nil || d.Name != resource+"."+gateway.Group || d.DeletionTimestamp != nil {
			continue
		}
		for _, c := range d.Status.Conditions {
			ok = ok || c.Type == "Established" && c.Status == "True"
		}
		for _, version := range gatewayVersions(resource) {
			for _, v := range d.Spec.Versions {
				if ok && v.Name == version && v.Served {
					return d.UID, version, true
				}
			}
		}
	}
	return "", "", false
}

// read returns the objects of the Gateway API. When some are watched for the first time, it
// waits for them, up to patience.
func (g *gatewayAPI) read(ctx context.Context) (gateway.Source, error) {
	g.former, g.decoded = g.decoded, map[any]any{}
	if _, _, ok := g.served(ctx, gatewaysOfAPI); !ok {
		g.end()
		return gateway.Source{}, nil
	}
	resources := []string{gatewayClasses, gatewaysOfAPI, httpRoutes, grpcRoutes, referenceGrants}
	var synced []cache.DoneChecker
	for _, resource := range resources {
		done, err := g.followDefinition(ctx, resource)
		if err != nil {
			return gateway.Source{}, err
		}
		if done != nil {
			synced = append(synced, done)
		}
	}
	g.wait(ctx, synced)
	synced = nil
	for _, resource := range resources {
		done, err := g.followObjects(ctx, resource)
		if err != nil {
			return gateway.Source{}, err
		}
		if done != nil {
			synced = append(synced, done)
		}
	}
	if g.namespaces == nil {
		var done cache.DoneChecker
		var err error
		if g.namespaces, done, err = g.follow(ctx, v1.SchemeGroupVersion.WithResource("namespaces"), fields.Everything()); err != nil {
			return gateway.Source{}, err
		}
		synced = append(synced, done)
	}
	g.wait(ctx, synced)
	s := gateway.Source{
		Classes: objectsOf[gateway.Class](ctx, g, gatewayClasses), Gateways: objectsOf[gateway.Gateway](ctx, g, gatewaysOfAPI),
		Grants: objectsOf[gateway.Grant](ctx, g, referenceGrants),
		NamespaceLabels: func(name string) labels.Set {
			if n := objectOf[*v1.Namespace](g.namespaces, "", name); n != nil {
				return n.Labels
			}
			return nil
		},
	}
	for _, of := range []struct{ resource, kind string }{{httpRoutes, gateway.KindHTTP}, {grpcRoutes, gateway.KindGRPC}} {
		for _, r := range objectsOf[gateway.Route](ctx, g, of.resource) {
			r.Kind = of.kind
			s.Routes = append(s.Routes, r)
		}
	}
	return s, nil
}

// followObjects watches the objects of a resource while it is served. A definition that was
// created again has other objects.
func (g *gatewayAPI) followObjects(ctx context.Context, resource string) (cache.DoneChecker, error) {
	uid, version, ok := g.served(ctx, resource)
	w := g.watched[resource]
	if ok && w != nil && w.definition == uid && w.version == version {
		return nil, nil
	}
	if w != nil {
		w.end()
		delete(g.watched, resource)
	}
	if !ok {
		return nil, nil
	}
	watching, end := context.WithCancel(ctx)
	objects, done, err := g.follow(watching, schema.GroupVersionResource{Group: gateway.Group, Version: version, Resource: resource}, fields.Everything())
	if err != nil {
		end()
		return nil, err
	}
	g.watched[resource] = &watchedResource{uid, version, objects, end}
	return done, nil
}

// end watches no objects any more.
func (g *gatewayAPI) end() {
	for resource, w := range g.watched {
		w.end()
		delete(g.watched, resource)
	}
}

// wait waits for first lists, up to patience.
func (g *gatewayAPI) wait(ctx context.Context, synced []cache.DoneChecker) {
	if len(synced) == 0 {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitFor(waiting, "", synced...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Not all objects of the Gateway API are known yet; serving without them")
	}
}

// objectsOf returns the objects of a resource that can be decoded.
func objectsOf[T any](ctx context.Context, g *gatewayAPI, resource string) []*T {
	w := g.watched[resource]
	if w == nil {
		return nil
	}
	var all []*T
	for _, obj := range w.objects.List() {
		if o := decode[T](ctx, g, obj); o != nil {
			all = append(all, o)
		}
	}
	return all
}

// decode returns what is used of an object of an informer. It returns nil for one that is
// not as its definition should have it.
func decode[T any](ctx context.Context, g *gatewayAPI, obj any) *T {
	known, ok := g.decoded[obj]
	if !ok {
		known, ok = g.former[obj]
	}
	if !ok {
		into := new(T)
		data, err := json.Marshal(obj)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "An object of the Gateway API cannot be read")
			into = nil
		}
		known = into
	}
	g.decoded[obj] = known
	return known.(*T)
}

// reduceDefinition removes from an object of a custom resource, or a definition of one, what
// is not used. The object is the informer's own.
func reduceDefinition(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	spec, _ := o.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok {
			delete(version, "schema")
		}
	}
}

// createClass creates the GatewayClass of the controller, once for each time that the Gateway
// API is installed.
func (g *gatewayAPI) createClass(ctx context.Context) error {
	w := g.watched[gatewayClasses]
	if w == nil || w.definition == g.created {
		return nil
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gateway.Group + "/" + w.version, "kind": "GatewayClass",
		"metadata": map[string]any{"name": gateway.DefaultClass},
		"spec":     map[string]any{"controllerName": gateway.ControllerName},
	}}
	_, err := g.client.Dynamic.Resource(g.resource(gatewayClasses)).Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the GatewayClass %s: %w", gateway.DefaultClass, err)
	}
	g.created = w.definition
	return nil
}

// resource returns a resource that is watched, with its version.
func (g *gatewayAPI) resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gateway.Group, Version: g.watched[name].version, Resource: name}
}

// gatewayStatus is the status that an object of the Gateway API is to have.
type gatewayStatus struct {
	resource        schema.GroupVersionResource
	namespace, name string
	patch           []byte
}

// gatewayStatusKey identifies such an object.
type gatewayStatusKey struct{ resource, namespace, name string }

// announceGateways writes the statuses that differ from those of a plan.
func (c *Controller) announceGateways(plan *gateway.Plan) error {
	pending := map[gatewayStatusKey]gatewayStatus{}
	for _, s := range plan.Statuses() {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": s.Object.UID, "resourceVersion": s.Object.ResourceVersion},
			"status":   s.Value,
		})
		if err != nil {
			return err
		}
		pending[gatewayStatusKey{s.Resource, s.Object.Namespace, s.Object.Name}] = gatewayStatus{c.gateways.resource(s.Resource), s.Object.Namespace, s.Object.Name, patch}
	}
	c.mu.Lock()
	c.pending = pending
	c.mu.Unlock()
	for key := range pending {
		c.gatewayStatus.Add(key)
	}
	return nil
}

// statusPause is the least time between two writes of the status of one object. Servers of
// different versions, or with different ports, would otherwise write theirs in turn as fast
// as they can.
const statusPause = time.Second

// syncGatewayStatus writes a status. If the object has changed meanwhile, a newer table
// brings a newer status.
func (c *Controller) syncGatewayStatus(ctx context.Context, key gatewayStatusKey) error {
	maps.DeleteFunc(c.written, func(_ gatewayStatusKey, at time.Time) bool { return time.Since(at) >= statusPause })
	if at, recently := c.written[key]; recently {
		c.gatewayStatus.AddAfter(key, time.Until(at.Add(statusPause)))
		return nil
	}
	c.mu.Lock()
	s, ok := c.pending[key]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	c.written[key] = time.Now()
	_, err := c.Client.Dynamic.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, s.patch, metav1.PatchOptions{}, "status")
	return controller.IgnoreNotFoundOrConflict(err)
}

// gatewayAddresses returns gateway.Source.Addresses. It looks at the nodes once, however
// many Gateways there are.
func (c *Controller) gatewayAddresses() func(has []string) []string {
	addresses := sync.OnceValue(c.addresses)
	return func(has []string) []string {
		var given []networkingv1.IngressLoadBalancerIngress
		for _, a := range has {
			given = append(given, networkingv1.IngressLoadBalancerIngress{IP: a})
		}
		var all []string
		for _, a := range addresses()(given) {
			all = append(all, a.IP)
		}
		return slices.Compact(all)
	}
}
