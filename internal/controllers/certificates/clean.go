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
	"k8s.io/apimachinery/pkg/labels"
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
	clean := func(ctx context.Context) error {
		all, err := requests.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		var errs []error
		for _, csr := range all {
			reason := deletionReason(csr, time.Now())
			if reason == "" {
				continue
			}
			klog.FromContext(ctx).V(2).Info("Deleting certificate signing request", "name", csr.Name, "reason", reason)
			err := env.Client.Kubernetes.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &csr.UID},
			})
			if err = controller.IgnoreNotFoundOrConflict(err); err != nil {
				errs = append(errs, fmt.Errorf("deleting request %s: %w", csr.Name, err))
			}
		}
		return errors.Join(errs...)
	}
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{controller.Reads(requests.Informer())}, func(ctx context.Context) error {
			supervise.Repeat(ctx, pollingInterval, func() {
				if err := clean(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot delete some old certificate signing requests, retrying later", "after", pollingInterval)
				}
			})
			return nil
		})
	}), nil
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
