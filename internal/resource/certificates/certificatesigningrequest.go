package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/printers"
)

// CertificateSigningRequests is the resource certificatesigningrequests.
func CertificateSigningRequests() *resource.Resource {
	doc := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return resource.Define(resource.Definition[certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequest]{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Names: resource.Names{
			Kind:       "CertificateSigningRequest",
			Plural:     "certificatesigningrequests",
			ShortNames: []string{"csr"},
		},
		Cluster: true,
		Status: resource.Status[*certificatesv1.CertificateSigningRequest]{
			Copy: func(c, from *certificatesv1.CertificateSigningRequest) {
				c.Status = from.Status
			},
			Prepare:  prepareSigned,
			Validate: validateSigned,
		},
		UpdateValidatesAlone: true,
		Strategy: resource.Strategy[*certificatesv1.CertificateSigningRequest]{
			PrepareForCreate: prepareSigningRequest,
			PrepareForUpdate: func(_ *resource.RequestContext, c, old *certificatesv1.CertificateSigningRequest) { c.Spec = old.Spec },
			Validate: func(_ *resource.RequestContext, c *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return validateSigningRequest(c, leniency{})
			},
			ValidateUpdate: func(_ *resource.RequestContext, c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return validateWhole(c, old)
			},
			ValidateName: resource.NameIsPathSegment,
		},
		Table: resource.Table[*certificatesv1.CertificateSigningRequest]{
			Columns: []metav1.TableColumnDefinition{
				resource.NameColumn(),
				resource.AgeColumn(),
				resource.Column("SignerName", "string", doc["signerName"]),
				resource.Column("Requestor", "string", doc["request"]),
				resource.Column("RequestedDuration", "string", doc["expirationSeconds"]),
				resource.Column("Condition", "string", certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]),
			},
			Row: signingRequestRow,
		},
		FieldSelectors: resource.FieldSelectors[*certificatesv1.CertificateSigningRequest]{
			SelectableFields: func(c *certificatesv1.CertificateSigningRequest) fields.Set {
				return fields.Set{"spec.signerName": c.Spec.SignerName}
			},
			Fields: []string{"spec.signerName"},
		},
		Subresources: []resource.SubresourceDefinition[certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequest]{{
			Name:             "approval",
			PrepareForUpdate: prepareApproval,
			ValidateUpdate:   validateApproval,
		}},
	})
}

// prepareApproval keeps what an approver may write: the conditions except
// Failed.
func prepareApproval(r *resource.RequestContext, obj, old *certificatesv1.CertificateSigningRequest) {
	conditions := obj.Status.Conditions
	obj.Spec = old.Spec
	obj.Status = old.Status
	obj.Status.Conditions = conditions
	setConditionTimes(r, obj, old)
}

// prepareSigned keeps what a signer may write. Conditions of approval stay as
// they are unless their number changes, which validation refuses.
func prepareSigned(r *resource.RequestContext, obj, old *certificatesv1.CertificateSigningRequest) {
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		before, now := conditionsOf(old, t), conditionsOf(obj, t)
		if len(before) != len(now) {
			continue
		}
		for i := range now {
			before[i].DeepCopyInto(now[i])
		}
	}
	setConditionTimes(r, obj, old)
}

func conditionsOf(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == t {
			found = append(found, &c.Status.Conditions[i])
		}
	}
	return found
}

// setConditionTimes sets the missing times of conditions: lastUpdateTime to
// now, and lastTransitionTime to now unless the old object has the condition
// with the same status.
func setConditionTimes(r *resource.RequestContext, obj, old *certificatesv1.CertificateSigningRequest) {
	type identity struct {
		kind   certificatesv1.RequestConditionType
		status corev1.ConditionStatus
	}
	since := map[identity]metav1.Time{} // when old conditions changed
	for _, before := range old.Status.Conditions {
		id := identity{before.Type, before.Status}
		if _, known := since[id]; !known && !before.LastTransitionTime.IsZero() {
			since[id] = before.LastTransitionTime
		}
	}
	now := metav1.NewTime(r.Now)
	for i := range obj.Status.Conditions {
		c := &obj.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		if at, known := since[identity{c.Type, c.Status}]; known {
			c.LastTransitionTime = at
		}
	}
}

func signingRequestRow(c *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	signer, requested := printers.None, printers.None
	if c.Spec.SignerName != "" {
		signer = c.Spec.SignerName
	}
	if c.Spec.ExpirationSeconds != nil {
		requested = duration.HumanDuration(time.Duration(*c.Spec.ExpirationSeconds) * time.Second)
	}
	return []any{
		c.Name, resource.Age(c.CreationTimestamp, now), signer, c.Spec.Username, requested, conditionCell(&c.Status),
	}
}

func conditionCell(s *certificatesv1.CertificateSigningRequestStatus) string {
	var approved, denied, failed bool
	for _, c := range s.Conditions {
		approved = approved || c.Type == certificatesv1.CertificateApproved
		denied = denied || c.Type == certificatesv1.CertificateDenied
		failed = failed || c.Type == certificatesv1.CertificateFailed
	}
	state := "Pending"
	switch {
	case denied:
		state = "Denied"
	case approved:
		state = "Approved"
	}
	if failed {
		state += ",Failed"
	}
	if len(s.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
