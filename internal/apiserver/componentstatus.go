package apiserver

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/watchcache"
)

// componentStatuses answers upstream's deprecated list of components. Of those
// it names, an API server can vouch only for the store.
func (q *request) componentStatuses() error {
	q.warnings.AddWarning("", "v1 ComponentStatus is deprecated in v1.19+")
	o, err := q.negotiate()
	if err != nil {
		return err
	}
	e := unstored(q.storeStatus())
	if q.info.Verb == "list" {
		return q.sendPage(&page{entries: []*watchcache.Entry{e}}, o)
	}
	if q.info.Name != e.Name {
		return apierrors.NewNotFound(q.endpoint.groupResource(), q.info.Name)
	}
	return q.sendEntry(http.StatusOK, e, o)
}

func (q *request) storeStatus() *corev1.ComponentStatus {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if _, err := q.server.Cache.Fresh(q.ctx); err != nil {
		condition.Status, condition.Message, condition.Error = corev1.ConditionFalse, "", err.Error()
	}
	return &corev1.ComponentStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "ComponentStatus", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-0"},
		Conditions: []corev1.ComponentCondition{condition},
	}
}
