package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/supervise"
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
	clean := func(ctx context.Context) error {
		all, err := requests.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		var errs []error
		for _, r := range all {
			if time.Since(r.CreationTimestamp.Time) < podRequestExpiration {
				continue
			}
			err := env.Client.Kubernetes.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &r.UID},
			})
			if err = controller.IgnoreNotFoundOrConflict(err); err != nil {
				errs = append(errs, fmt.Errorf("deleting request %s/%s: %w", r.Namespace, r.Name, err))
			}
		}
		return errors.Join(errs...)
	}
	return controller.Func(func(ctx context.Context) error {
		if served, err := env.WaitUnlessServed(ctx, certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests")); !served {
			return err
		}
		return controller.Serve(ctx, []controller.Source{controller.Reads(requests.Informer())}, func(ctx context.Context) error {
			supervise.Repeat(ctx, podRequestPollInterval, func() {
				if err := clean(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot delete some old pod certificate requests, retrying later", "after", podRequestPollInterval)
				}
			})
			return nil
		})
	}), nil
}
