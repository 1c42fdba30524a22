package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
)

// A plugin that cannot be started delays a write until the write's deadline at
// most.
func TestPluginStartTimeout(t *testing.T) {
	m := objectstest.NewMemory().Put(objects.MutatingWebhooks, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}})
	begun, release := make(chan struct{}), make(chan struct{})
	p := Extensions(t.Context(), m, nil, nil, func() (*Access, error) {
		close(begun)
		<-release
		return nil, errors.New("not now")
	})["MutatingAdmissionWebhook"].(admission.MutationInterface)
	first := make(chan error, 1)
	go func() { first <- p.Admit(t.Context(), createPod("p"), newObjectInterfaces(scheme.Scheme, nil)) }()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Admit(ctx, createPod("p"), newObjectInterfaces(scheme.Scheme, nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the first: %v", err)
	}
	close(release)
	if err := <-first; err == nil {
		t.Error("started without access")
	}
}
