package admission

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/resource/certificates"
)

// token restricts a node to tokens that are bound to its own pods, for the
// audiences in their specs (KEP-4412).
func (p nodeRestriction) token(ctx context.Context, self string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "token" {
		return nil
	}
	request, err := typed[*authenticationv1.TokenRequest](a, a.GetObject())
	if err != nil {
		return err
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return refused(a, "node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return refused(a, "node requested token with a pod binding without a uid")
	}
	pod, ok := p.pods.Get(a.GetNamespace(), ref.Name)
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("pods"), ref.Name)
	}
	if ref.UID != pod.UID {
		return apierrors.NewConflict(corev1.Resource("pods"), ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	if pod.Spec.NodeName != self {
		return refused(a, "node requested token bound to a pod scheduled on a different node")
	}
	if !p.audiences {
		return nil
	}
	if len(request.Spec.Audiences) > 1 {
		return refused(a, "node may only request 0 or 1 audiences")
	}
	audience := "" // the API server's
	if len(request.Spec.Audiences) == 1 {
		audience = request.Spec.Audiences[0]
	}
	if p.hasAudience(pod, audience) || p.may(ctx, a, authorizer.AttributesRecord{
		Verb: "request-serviceaccounts-token-audience", APIVersion: "v1", Resource: audience, Name: a.GetName(),
	}) {
		return nil
	}
	return refused(a, "audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", audience, a.GetUserInfo().GetName())
}

// may reports whether the authorizer allows the node a request in the namespace
// of the write.
func (p nodeRestriction) may(ctx context.Context, a admission.Attributes, wanted authorizer.AttributesRecord) bool {
	wanted.User, wanted.Namespace, wanted.ResourceRequest = a.GetUserInfo(), a.GetNamespace(), true
	decision, _, _ := p.authorizer.Authorize(ctx, wanted)
	return decision == authorizer.DecisionAllow
}

// hasAudience reports whether a volume of the pod needs a token for the
// audience: a projected volume, or one of a CSI driver that requests such
// tokens.
func (p nodeRestriction) hasAudience(pod *corev1.Pod, audience string) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience {
					return true
				}
			}
		}
		driver, ok := p.drivers.Get("", p.driverOf(pod, v))
		if !ok {
			continue
		}
		for _, t := range driver.Spec.TokenRequests {
			if t.Audience == audience {
				return true
			}
		}
	}
	return false
}

// driverOf returns the CSI driver of a pod's volume; "" if it has none.
func (p nodeRestriction) driverOf(pod *corev1.Pod, v *corev1.Volume) string {
	if v.CSI != nil {
		return v.CSI.Driver
	}
	name, _ := podquery.ClaimName(pod, v)
	if name == "" {
		return ""
	}
	claim, ok := p.claims.Get(pod.Namespace, name)
	if !ok || claim.Spec.VolumeName == "" {
		return ""
	}
	volume, ok := p.volumes.Get("", claim.Spec.VolumeName)
	if !ok || volume.Spec.CSI == nil {
		return ""
	}
	return volume.Spec.CSI.Driver
}

// nodeSigningRequest restricts a node to kubelet certificates in its own name.
func nodeSigningRequest(self string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	csr, err := typed[*certificatesv1.CertificateSigningRequest](a, a.GetObject())
	if err != nil {
		return err
	}
	switch csr.Spec.SignerName {
	case certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName:
	default:
		return nil
	}
	request, err := certificates.ParseRequest(csr.Spec.Request)
	if err != nil {
		return refused(a, "unable to parse csr: %w", err)
	}
	if request.Subject.CommonName != pki.NodePrefix+self {
		return refused(a, "can only create a node CSR with CN=system:node:%s", self)
	}
	return nil
}

// podCertificate restricts a node to certificates for its own pods, from the
// signers in their specs. If the watch cache may be behind, it returns an
// internal error, which clients retry.
func (p nodeRestriction) podCertificate(ctx context.Context, self string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create {
		return refused(a, "unexpected operation %v", a.GetOperation())
	}
	if a.GetSubresource() != "" {
		return refused(a, "unexpected subresource %v", a.GetSubresource())
	}
	request, err := typed[*certificatesv1.PodCertificateRequest](a, a.GetObject())
	if err != nil {
		return err
	}
	spec := &request.Spec
	name := a.GetNamespace() + "/" + spec.PodName
	if string(spec.NodeName) != self {
		return refused(a, "PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, self)
	}
	node, ok := p.nodes.Get("", self)
	if !ok || node.UID != spec.NodeUID {
		return retryLater("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node", name, spec.NodeUID)
	}
	pod, ok := p.pods.Get(a.GetNamespace(), spec.PodName)
	switch {
	case !ok || pod.UID != spec.PodUID:
		return retryLater("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod", name, spec.PodUID)
	case pod.Spec.NodeName != self:
		return refused(a, "pod %q is not running on node %q named in the PodCertificateRequest", name, spec.NodeName)
	case podquery.IsMirror(pod):
		return refused(a, "pod %q is a mirror pod", name)
	case pod.Spec.ServiceAccountName != spec.ServiceAccountName:
		return refused(a, "PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)", name, spec.ServiceAccountName, pod.Spec.ServiceAccountName)
	}
	account, ok := p.accounts.Get(a.GetNamespace(), spec.ServiceAccountName)
	if !ok || account.UID != spec.ServiceAccountUID {
		return retryLater("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account", name, spec.ServiceAccountUID)
	}
	if namesSigner(pod, spec.SignerName) || p.may(ctx, a, authorizer.AttributesRecord{
		Verb: "request-serviceaccounts-podcertificate-signer", APIGroup: certificatesv1.GroupName, APIVersion: "*",
		Resource: strings.ReplaceAll(spec.SignerName, "/", ":"), Name: spec.ServiceAccountName,
	}) {
		return nil
	}
	return refused(a, "pod %q has no projected volume with a certificate of signer %q", name, spec.SignerName)
}

// namesSigner reports whether a volume of the pod has a certificate of the
// signer.
func namesSigner(pod *corev1.Pod, signer string) bool {
	for i := range pod.Spec.Volumes {
		if from := pod.Spec.Volumes[i].Projected; from != nil {
			for _, s := range from.Sources {
				if s.PodCertificate != nil && s.PodCertificate.SignerName == signer {
					return true
				}
			}
		}
	}
	return false
}

func retryLater(format string, args ...any) error {
	return apierrors.NewInternalError(fmt.Errorf(format, args...))
}
