package crd_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/apply"
	"github.com/coracle-io/coracle/internal/apiserver/crd"
	"github.com/coracle-io/coracle/internal/apiserver/openapi"
	"github.com/coracle-io/coracle/internal/metrics"
)

const patience = 3 * time.Minute

// cluster is an API server with custom resources, and its clients.
type cluster struct {
	*testing.T
	server      *apiservertest.Server
	counts      *metrics.APIServer
	definitions apiextensions.Interface
	objects     dynamic.Interface
}

func start(t *testing.T) *cluster {
	t.Helper()
	documents, err := openapi.New()
	if err != nil {
		t.Fatal(err)
	}
	var custom *crd.Server
	var managers *apply.Managers
	counts := metrics.NewAPIServer(nil)
	server := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Registry.Metrics = counts
		custom = crd.New(crd.Config{BuiltIn: c.Resources, Cache: c.Registry.Cache, Documents: documents, Clock: clock.RealClock{}, Forget: counts.Forget})
		managers = apply.New(custom.SchemasOr(documents.Schemas))
		c.Registry.Managers = managers
		c.Handlers.Paths = map[string]http.Handler{"/openapi/v2": documents, "/openapi/v3": documents, "/openapi/v3/": documents}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- custom.Run(ctx, server, managers, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-ready
	return &cluster{
		T: t, server: server, counts: counts,
		definitions: apiextensions.NewForConfigOrDie(server.Config),
		objects:     dynamic.NewForConfigOrDie(server.Config),
	}
}

// define creates a definition and waits until it is established.
func (c *cluster) define(text string) *apiextensionsv1.CustomResourceDefinition {
	c.Helper()
	wanted := &apiextensionsv1.CustomResourceDefinition{}
	decode(c.T, text, wanted)
	c.create(wanted)
	return c.await(wanted.Name, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd != nil && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
}

func (c *cluster) create(crd *apiextensionsv1.CustomResourceDefinition) {
	c.Helper()
	if _, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(c.Context(), crd, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// await watches a definition until it satisfies a condition; nil stands for its
// deletion.
func (c *cluster) await(name string, good func(*apiextensionsv1.CustomResourceDefinition) bool) *apiextensionsv1.CustomResourceDefinition {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	api := c.definitions.ApiextensionsV1().CustomResourceDefinitions()
	list, err := api.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		c.Fatal(err)
	}
	var last *apiextensionsv1.CustomResourceDefinition
	if len(list.Items) > 0 {
		last = &list.Items[0]
	}
	if good(last) {
		return last
	}
	w, err := api.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: list.ResourceVersion})
	if err != nil {
		c.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if last, _ = e.Object.(*apiextensionsv1.CustomResourceDefinition); e.Type == "DELETED" {
			last = nil
		}
		if good(last) {
			return last
		}
	}
	c.Fatalf("definition %s did not come to be as wanted; it is %+v", name, last)
	return nil
}

func (c *cluster) kind(version, plural string) dynamic.ResourceInterface {
	return c.objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: plural}).Namespace("default")
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func wantInvalid(t *testing.T, err error, message string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || err.Error() != message {
		t.Errorf("got  %v\nwant %s", err, message)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// pemOf returns the CA bundle that trusts a test server.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
