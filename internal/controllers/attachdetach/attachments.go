package attachdetach

import (
	"context"
	"maps"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// doubtful is how long after a request whose outcome is not known an attachment
// may still appear. The API server ends requests after a minute.
const doubtful = 2 * time.Minute

// attachments answers which attachments exist: two nodes that write to one volume
// destroy it, and the cache may not show yet what this controller, or one before
// it, has created.
//
// The cache does not go back in time: it shows for good, until its deletion, what
// it has shown once. So it lacks no attachment of this controller if it has shown
// all of those that
//
//   - existed at a read of the API server after which no request of unknown outcome
//     could be carried out any more, or
//   - this controller has created since then, and knows of.
//
// Until then, and for each while that it is behind, all reads the API server. Only
// the worker uses it.
type attachments struct {
	api   storageclient.VolumeAttachmentInterface
	cache cache.Indexer
	// unseen holds attachments that the cache has not shown yet. It is nil if there may
	// be others.
	unseen map[string]types.UID
	// doubt is when the outcome of a request was last unknown. The first are those of the
	// controller before this one.
	doubt time.Time
}

// all returns the attachments.
func (a *attachments) all(ctx context.Context) ([]*storagev1.VolumeAttachment, error) {
	maps.DeleteFunc(a.unseen, a.isCached)
	if a.unseen != nil && len(a.unseen) == 0 {
		cached := a.cache.List()
		all := make([]*storagev1.VolumeAttachment, 0, len(cached))
		for _, o := range cached {
			all = append(all, o.(*storagev1.VolumeAttachment))
		}
		return all, nil
	}
	if a.doubt.IsZero() {
		a.doubt = time.Now()
	}
	certain := time.Since(a.doubt) > doubtful
	list, err := a.api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	unseen := map[string]types.UID{}
	all := make([]*storagev1.VolumeAttachment, 0, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		if !a.isCached(one.Name, one.UID) {
			unseen[one.Name] = one.UID
		}
		all = append(all, one)
	}
	a.unseen = nil
	if certain {
		a.unseen = unseen
	}
	return all, nil
}

// isCached reports whether the cache shows an attachment.
func (a *attachments) isCached(name string, uid types.UID) bool {
	o, exists, err := a.cache.GetByKey(name)
	return err == nil && exists && o.(*storagev1.VolumeAttachment).UID == uid
}

// create creates an attachment.
func (a *attachments) create(ctx context.Context, wanted *storagev1.VolumeAttachment) error {
	created, err := a.api.Create(ctx, wanted, metav1.CreateOptions{})
	switch {
	case err == nil:
		if a.unseen != nil {
			a.unseen[created.Name] = created.UID
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err): // nothing was created
	case apierrors.IsAlreadyExists(err):
		a.unseen = nil // the next read shows it
	default:
		a.unseen, a.doubt = nil, time.Now()
	}
	return err
}
