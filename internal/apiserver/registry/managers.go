package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/coracle-io/coracle/internal/resource"
)

// ManagedKind is the form in which a request speaks of an object's fields.
type ManagedKind struct {
	Resource    *resource.Resource
	Version     *resource.Version
	Subresource string
}

// FieldManagers tracks who owns which fields of an object
// (metadata.managedFields, KEP-555). Objects are hub objects; live is nil for
// an object that is being created and is never changed.
type FieldManagers interface {
	// Update notes in obj what manager changed against live. obj may carry
	// other managed fields than live if the client means to change them. An
	// error refuses the write.
	Update(k ManagedKind, live, obj resource.Object, manager string) error
	// KeepTimes takes live's times for entries that differ in nothing else,
	// so that a write that changes nothing stays one.
	KeepTimes(live, obj resource.Object)
	// Apply merges a configuration (a JSON object) into live and returns the
	// result, or a Conflict that names the managers of contested fields.
	Apply(k ManagedKind, live resource.Object, configuration map[string]any, manager string, force bool) (resource.Object, error)
}

// manage is the one place where plain writes track ownership.
func (q *Request) manage(live, obj resource.Object, manager string) error {
	if m := q.Registry.Managers; m != nil {
		return m.Update(q.managedKind(), live, obj, managerOrUserAgent(manager, q.UserAgent))
	}
	if live == nil {
		obj.SetManagedFields(nil)
	} else {
		obj.SetManagedFields(live.GetManagedFields())
	}
	return nil
}

func (q *Request) managedKind() ManagedKind {
	return ManagedKind{q.Endpoint.Resource, q.Endpoint.Version, q.Info.Subresource}
}

// managerOrUserAgent is the field manager of a write: the given one, or the first
// part of the user agent as far as it can be printed and fits.
func managerOrUserAgent(given, userAgent string) string {
	if given != "" {
		return given
	}
	program, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}
