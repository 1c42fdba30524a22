package apiserver

import (
	"net/http"
	"path"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/apiserver/pods"
	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/apiserver/status"
	"github.com/coracle-io/coracle/internal/apiserver/tokens"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// action runs the resource.Action of a subresource or a virtual resource in place
// of the verb. A POST to pods/eviction, for example, evicts and creates nothing.
// The verb alone on stored objects is an operation.
type action struct {
	q    *request
	call *registry.Request
	in   input
}

func newAction(q *request) action { return action{q, &q.call, input{q}} }

// perform carries out the action of a resource or subresource.
func (a action) perform(act resource.Action) error {
	switch act {
	case resource.ReadLog, resource.UseContainer, resource.Proxy, resource.ProxyNode:
		return a.connect()
	case resource.Bind:
		return a.bind()
	case resource.Evict:
		return a.evict()
	case resource.IssueToken:
		return a.issueToken()
	case resource.Review:
		return a.review()
	case resource.ReadComponents:
		a.q.response.warnings.AddWarning("", "v1 ComponentStatus is deprecated in v1.19+")
		components := a.q.server.components
		return a.readUnstored(
			func(*internalversion.ListOptions) []*watchcache.Entry { return components.List(a.call.Context) },
			func() (*watchcache.Entry, bool) { return components.Get(a.call.Context, a.call.Info.Name) })
	case resource.ReadMetrics:
		metrics, kind := a.q.server.handlers.NodeAndPodMetrics, a.call.Endpoint.Resource.Kind
		if metrics == nil {
			return apierrors.NewServiceUnavailable("this API server has no connection to the nodes")
		}
		return a.readUnstored(
			func(o *internalversion.ListOptions) []*watchcache.Entry {
				return metrics.List(kind, a.call.Info.Namespace, o)
			},
			func() (*watchcache.Entry, bool) { return metrics.Get(kind, a.call.Info.Namespace, a.call.Info.Name) })
	}
	return status.MethodNotAllowed()
}

// bind serves pods/binding.
func (a action) bind() error {
	out, err := negotiate(a.q)
	if err != nil {
		return err
	}
	binding := &corev1.Binding{}
	options, err := a.in.newOfKind(binding, corev1.SchemeGroupVersion.WithKind("Binding"))
	if err != nil {
		return err
	}
	if err := pods.Bind(a.call, binding, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, status.Created())
}

// evict serves pods/eviction.
func (a action) evict() error {
	out, err := negotiate(a.q)
	if err != nil {
		return err
	}
	eviction := &policyv1.Eviction{}
	options, err := a.in.newOfKind(eviction, a.call.Subresource.Kind)
	if err != nil {
		return err
	}
	if err := pods.Evict(a.call, eviction, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, status.Created())
}

// issueToken serves serviceaccounts/token.
func (a action) issueToken() error {
	out, err := negotiate(a.q)
	if err != nil {
		return err
	}
	if a.q.server.access.ServiceAccountTokens == nil {
		return status.NoSuchResource()
	}
	wanted := &authenticationv1.TokenRequest{}
	options, err := a.in.newOfKind(wanted, a.call.Subresource.Kind)
	if err != nil {
		return err
	}
	issued, err := tokens.Issue(a.call, a.q.server.access.ServiceAccountTokens, wanted, options)
	if err != nil {
		return err
	}
	return out.object(http.StatusCreated, issued)
}

// review serves access and token reviews: it returns them with their status.
func (a action) review() error {
	out, err := negotiateFor(a.q, codec.Accepted{Protobuf: a.call.Endpoint.Codec.HasProtobuf(), Convert: true, NoTable: true})
	if err != nil {
		return err
	}
	obj, options, err := a.in.newObject()
	if err != nil {
		return err
	}
	if err := a.q.server.reviews.Create(a.call, obj, options); err != nil {
		return err
	}
	return out.plain().object(http.StatusCreated, obj)
}

// readUnstored serves a resource whose objects the server computes when they are
// read.
func (a action) readUnstored(list func(*internalversion.ListOptions) []*watchcache.Entry, get func() (*watchcache.Entry, bool)) error {
	out, err := negotiate(a.q)
	if err != nil {
		return err
	}
	if a.call.Info.Verb == "list" {
		options, err := listOptions(a.q.query(), false, a.call)
		if err != nil {
			return err
		}
		return out.page(&registry.Page{Entries: list(options)})
	}
	e, ok := get()
	if !ok {
		return apierrors.NewNotFound(a.call.Endpoint.GroupResource(), path.Join(a.call.Info.Namespace, a.call.Info.Name))
	}
	return out.entry(http.StatusOK, e)
}
