//go:build openapigen

package main

import (
	"fmt"
	"path"
	"slices"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coracle-io/coracle/internal/resource"
)

// returnedByDelete lists the resources whose DELETE returns the object rather
// than a Status.
func returnedByDelete() []string {
	return []string{
		"pods", "podtemplates", "persistentvolumes", "persistentvolumeclaims", "resourcequotas", "services",
		"serviceaccounts", "storageclasses", "csidrivers", "csinodes", "csistoragecapacities", "volumeattachments",
		"volumeattributesclasses", "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices",
		"ipaddresses", "servicecidrs",
	}
}

// container installs the routes of all resources, of discovery and of the
// unversioned endpoints.
func container(scheme *runtime.Scheme, resources []*resource.Resource) (*restful.Container, error) {
	codecs := serializer.NewCodecFactory(scheme)
	c := restful.NewContainer()
	for _, gv := range groupVersions(resources) {
		storage := map[string]rest.Storage{}
		for _, r := range resources {
			for i := range r.Versions {
				if r.Versions[i].GroupVersion == gv {
					if err := addStorage(storage, scheme, r, &r.Versions[i]); err != nil {
						return nil, err
					}
				}
			}
		}
		root := "/apis"
		if gv.Group == "" {
			root = "/api"
		}
		optionsVersion := schema.GroupVersion{Version: "v1"}
		version := &endpoints.APIGroupVersion{
			Storage: storage, Root: root, GroupVersion: gv,
			OptionsExternalVersion: &optionsVersion, MetaGroupVersion: &metav1.SchemeGroupVersion,
			Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(scheme),
			Typer: scheme, Creater: scheme, Convertor: scheme, ConvertabilityChecker: scheme,
			Defaulter: scheme, UnsafeConvertor: scheme, Namer: runtime.Namer(nil),
			EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
			TypeConverter:              managedfields.NewDeducedTypeConverter(), // never used
		}
		if _, _, err := version.InstallREST(c); err != nil {
			return nil, fmt.Errorf("routes of %v: %w", gv, err)
		}
	}
	addDiscovery(c, codecs, resources)
	addUnversioned(c)
	return c, nil
}

func groupVersions(resources []*resource.Resource) []schema.GroupVersion {
	var all []schema.GroupVersion
	for _, r := range resources {
		for _, v := range r.Versions {
			if !slices.Contains(all, v.GroupVersion) {
				all = append(all, v.GroupVersion)
			}
		}
	}
	return all
}

func addStorage(storage map[string]rest.Storage, scheme *runtime.Scheme, r *resource.Resource, v *resource.Version) error {
	object := func() runtime.Object { return v.New() }
	b := base{
		kind: v.WithKind(r.Kind), object: object, singular: r.Singular, cluster: !r.Namespaced,
		returnsFull: slices.Contains(returnedByDelete(), r.Plural),
	}
	list := lister{list: func() runtime.Object { return mustNew(scheme, v.WithKind(r.Kind+"List")) }}
	switch has := func(verb string) bool { return slices.Contains(r.Verbs, verb) }; {
	case has("deletecollection"):
		storage[r.Plural] = full{base: b, lister: list}
	case has("watch"):
		storage[r.Plural] = withoutCollection{base: b, lister: list}
	case has("list"):
		storage[r.Plural] = readOnly{base: b, lister: list}
	default:
		storage[r.Plural] = createOnly{base: b}
	}
	for i := range r.Subresources {
		s := &r.Subresources[i]
		b := b
		if s.Kind.Kind != "" {
			b.kind = s.Kind
			b.object = func() runtime.Object { return mustNew(scheme, s.Kind) }
		}
		st, err := subresourceStorage(b, scheme, v, r, s)
		if err != nil {
			return err
		}
		storage[path.Join(r.Plural, s.Name)] = st
	}
	return nil
}

func subresourceStorage(b base, scheme *runtime.Scheme, v *resource.Version, r *resource.Resource, s *resource.Subresource) (rest.Storage, error) {
	exec := []string{"GET", "POST"}
	all := []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"}
	options := func(kind string) func() runtime.Object {
		return func() runtime.Object { return mustNew(scheme, v.WithKind(kind)) }
	}
	switch s.Name {
	case "log":
		b.kind, b.object = v.WithKind("Pod"), func() runtime.Object { return v.New() }
		return log{base: b, options: options("PodLogOptions")}, nil
	case "exec":
		return connecter{base: b, options: options("PodExecOptions"), methods: exec}, nil
	case "attach":
		return connecter{base: b, options: options("PodAttachOptions"), methods: exec}, nil
	case "portforward":
		return connecter{base: b, options: options("PodPortForwardOptions"), methods: exec}, nil
	case "proxy":
		return connecter{base: b, options: options(r.Kind + "ProxyOptions"), methods: all, subpath: true}, nil
	}
	switch {
	case slices.Contains(s.Verbs, "create"):
		return action{b}, nil
	case slices.Contains(s.Verbs, "get"):
		return part{base: b}, nil
	case slices.Contains(s.Verbs, "update"):
		return updateOnly{base: b}, nil
	}
	return nil, fmt.Errorf("%s/%s has none of the verbs create, get and update", r.Plural, s.Name)
}

func mustNew(scheme *runtime.Scheme, kind schema.GroupVersionKind) runtime.Object {
	object, err := scheme.New(kind)
	if err != nil {
		panic(err)
	}
	return object
}

func addDiscovery(c *restful.Container, codecs serializer.CodecFactory, resources []*resource.Resource) {
	c.Add(discovery.NewLegacyRootAPIHandler(discovery.DefaultAddresses{}, codecs, "/api").WebService())
	c.Add(discovery.NewRootAPIsHandler(discovery.DefaultAddresses{}, codecs).WebService())
	groups := map[string]bool{"": true}
	for _, gv := range groupVersions(resources) {
		if !groups[gv.Group] {
			groups[gv.Group] = true
			c.Add(discovery.NewAPIGroupHandler(codecs, metav1.APIGroup{Name: gv.Group}).WebService())
		}
	}
}

func addUnversioned(c *restful.Container) {
	plain := func(root, doc, operation, produces string, result any) {
		ws := new(restful.WebService)
		ws.Path(root).Doc(doc)
		ws.Route(ws.GET("/").To(func(*restful.Request, *restful.Response) {}).
			Doc(doc).Operation(operation).Produces(produces).Consumes(produces).
			Returns(200, "OK", result).Writes(result))
		c.Add(ws)
	}
	plain("/version", "get the version information for this server", "getCodeVersion", "application/json", utilversion.Info{})
	plain("/.well-known/openid-configuration", "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
		"getServiceAccountIssuerOpenIDConfiguration", "application/json", "")
	plain("/openid/v1/jwks", "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
		"getServiceAccountIssuerOpenIDKeyset", "application/jwk-set+json", "")
}
