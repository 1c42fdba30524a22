package dns

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/client"
)

// After a restart the Service is there. An API server refuses to make it again
// because of its address, not because of its name.
func TestAnnounceAgain(t *testing.T) {
	s := &Server{config: Config{Announce: []string{"10.96.0.10"}, Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53}}
	kubernetes := fake.NewClientset(s.service())
	kubernetes.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, serviceName, nil)
	})
	s.config.Client = &client.Client{Kubernetes: kubernetes}
	if err := s.publish(t.Context()); err != nil {
		t.Error(err)
	}
}
