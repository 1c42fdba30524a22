package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/controller"
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
	// settledLife is how long a request stays after it was signed, denied or
	// failed, pendingLife how long one stays that nobody decides on.
	settledLife = time.Hour
	pendingLife = 24 * time.Hour
	cleanPeriod = time.Hour
)

// newCleaning builds the controller that deletes requests.
func newCleaning(env *controller.Env) (controller.Controller, error) {
	requests := env.Client.Informers.Certificates().V1().CertificateSigningRequests()
	clean := func(ctx context.Context) error {
		all, err := requests.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		var errs []error
		for _, csr := range all {
			why := outdated(csr, time.Now())
			if why == "" {
				continue
			}
			klog.FromContext(ctx).V(2).Info("Deleting certificate signing request", "name", csr.Name, "reason", why)
			err := env.Client.Kubernetes.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("deleting the request %s: %w", csr.Name, err))
			}
		}
		return errors.Join(errs...)
	}
	return controller.Func(func(ctx context.Context) error {
		return controller.Serve(ctx, []controller.Source{controller.Reads(requests.Informer())}, func(ctx context.Context) error {
			tick := time.NewTicker(cleanPeriod)
			defer tick.Stop()
			for {
				if err := clean(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "Some old requests stay until the next time")
				}
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
				}
			}
		})
	}), nil
}

// outdated says why a request is not needed any longer; "" if it is.
func outdated(csr *certificatesv1.CertificateSigningRequest, now time.Time) string {
	if len(csr.Status.Conditions) == 0 && now.Sub(csr.CreationTimestamp.Time) > pendingLife {
		return "nobody approved or denied it"
	}
	issued := len(csr.Status.Certificate) > 0
	for _, c := range csr.Status.Conditions {
		old := now.Sub(c.LastUpdateTime.Time) > settledLife
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
