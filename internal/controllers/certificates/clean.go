package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Cleaning describes the controller that deletes old requests.
func Cleaning() controller.Descriptor {
	return controller.Descriptor{
		Name:           "certificatesigningrequest-cleaner-controller",
		Aliases:        []string{"csrcleaner"},
		ServiceAccount: "certificate-controller",
		EventSource:    "certificate-controller",
		New:            newCleaning,
	}
}

const (
	decidedExpiration = time.Hour      // of requests that were signed, denied or failed
	pendingExpiration = 24 * time.Hour // of requests that were neither approved nor denied
	pollingInterval   = time.Hour
)

// newCleaning builds the cleaning controller.
func newCleaning(env *controller.Env) (controller.Controller, error) {
	requests := env.Client.Informers.Certificates().V1().CertificateSigningRequests()
	api := env.Client.Kubernetes.CertificatesV1().CertificateSigningRequests()
	return controller.Func(func(ctx context.Context) error {
		return clean(ctx, requests.Informer(), pollingInterval, deletionReason, func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, options metav1.DeleteOptions) error {
			return api.Delete(ctx, csr.Name, options)
		})
	}), nil
}

// clean deletes the requests for which reason returns one. It looks at all of them in
// each period, until ctx ends.
func clean[T metav1.Object](ctx context.Context, requests cache.SharedIndexInformer, period time.Duration, reason func(T, time.Time) string, remove func(context.Context, T, metav1.DeleteOptions) error) error {
	return controller.Serve(ctx, []controller.Source{controller.Reads(requests)}, func(ctx context.Context) error {
		log := klog.FromContext(ctx)
		supervise.Repeat(ctx, period, func() {
			var errs []error
			for _, o := range requests.GetStore().List() {
				r := o.(T)
				why := reason(r, time.Now())
				if why == "" {
					continue
				}
				log.V(2).Info("Deleting a request", "request", klog.KObj(r), "reason", why)
				uid := r.GetUID()
				err := remove(ctx, r, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
				if err = controller.IgnoreNotFoundOrConflict(err); err != nil {
					errs = append(errs, fmt.Errorf("deleting request %s: %w", klog.KObj(r), err))
				}
			}
			if err := errors.Join(errs...); err != nil {
				log.Error(err, "Cannot delete some old requests, retrying later", "after", period)
			}
		})
		return nil
	})
}

// deletionReason returns why a request must be deleted, or "" if it must be kept.
func deletionReason(csr *certificatesv1.CertificateSigningRequest, now time.Time) string {
	if len(csr.Status.Conditions) == 0 && now.Sub(csr.CreationTimestamp.Time) > pendingExpiration {
		return "it was neither approved nor denied"
	}
	issued := len(csr.Status.Certificate) > 0
	for _, c := range csr.Status.Conditions {
		old := now.Sub(c.LastUpdateTime.Time) > decidedExpiration
		switch {
		case c.Type == certificatesv1.CertificateApproved && issued && (old || expired(csr.Status.Certificate, now)):
			return "it was signed"
		case c.Type == certificatesv1.CertificateDenied && old:
			return "it was denied"
		case c.Type == certificatesv1.CertificateFailed && old:
			return "it failed"
		}
	}
	return ""
}

func expired(certificate []byte, now time.Time) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(c.NotAfter)
}
