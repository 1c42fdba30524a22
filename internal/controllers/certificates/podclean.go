package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller"
)

// PodCleaning describes the controller that deletes old PodCertificateRequests
// (KEP-4317).
func PodCleaning() controller.Descriptor {
	const name = "podcertificaterequest-cleaner"
	return controller.Descriptor{
		Name:           name + "-controller",
		ServiceAccount: name,
		EventSource:    name,
		New:            newPodCleaning,
	}
}

const (
	// podRequestExpiration is how long a PodCertificateRequest stays. A kubelet reads
	// the certificate long before that, or asks again.
	podRequestExpiration   = 15 * time.Minute
	podRequestPollInterval = time.Minute
)

// newPodCleaning builds the controller. It does nothing where the requests are not
// served.
func newPodCleaning(env *controller.Env) (controller.Controller, error) {
	requests := env.Client.Informers.Certificates().V1().PodCertificateRequests()
	api := env.Client.Kubernetes.CertificatesV1()
	return controller.Func(func(ctx context.Context) error {
		if served, err := env.WaitUnlessServed(ctx, certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests")); !served {
			return err
		}
		return clean(ctx, requests.Informer(), podRequestPollInterval, podDeletionReason, func(ctx context.Context, r *certificatesv1.PodCertificateRequest, options metav1.DeleteOptions) error {
			return api.PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, options)
		})
	}), nil
}

// podDeletionReason returns why a request must be deleted, or "" if it must be kept.
func podDeletionReason(r *certificatesv1.PodCertificateRequest, now time.Time) string {
	if now.Sub(r.CreationTimestamp.Time) < podRequestExpiration {
		return ""
	}
	return "it is old"
}
