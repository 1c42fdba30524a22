package certificates

import (
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// An old request is deleted, and not a new one that was created with the same name.
func TestCleaningDeletesOnlyOldRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
			Name: "till", UID: "old", CreationTimestamp: metav1.NewTime(time.Now().Add(-25 * time.Hour)),
		}})
		c.Run(Cleaning())
		synctest.Wait()
		var deleted []types.UID
		for _, action := range c.Fake.Actions() {
			if d, ok := action.(clienttesting.DeleteActionImpl); ok {
				p := d.DeleteOptions.Preconditions
				if p == nil || p.UID == nil {
					t.Fatal("deleted without a precondition")
				}
				deleted = append(deleted, *p.UID)
			}
		}
		if len(deleted) != 1 || deleted[0] != "old" {
			t.Errorf("deleted %v", deleted)
		}
	})
}
