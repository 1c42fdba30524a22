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
// may still appear.
const doubtful = time.Minute

// attachments answers which attachments exist, also while the cache does not show
// some that this controller, or one before it, has created: two nodes that write
// to one volume destroy it. It reads them from the API server once, and then only
// while the cache is behind. Only the worker uses it.
type attachments struct {
	api   storageclient.VolumeAttachmentInterface
	cache cache.Indexer
	// unseen holds attachments that the cache has not shown yet. It is nil before the first read.
	unseen map[string]types.UID
	doubt  time.Time // when a request last had an unknown outcome
}

// all returns the attachments.
func (a *attachments) all(ctx context.Context) ([]*storagev1.VolumeAttachment, error) {
	maps.DeleteFunc(a.unseen, a.isCached)
	if a.unseen != nil && len(a.unseen) == 0 && time.Since(a.doubt) > doubtful {
		cached := a.cache.List()
		all := make([]*storagev1.VolumeAttachment, 0, len(cached))
		for _, o := range cached {
			all = append(all, o.(*storagev1.VolumeAttachment))
		}
		return all, nil
	}
	list, err := a.api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	a.unseen = map[string]types.UID{}
	all := make([]*storagev1.VolumeAttachment, 0, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		if !a.isCached(one.Name, one.UID) {
			a.unseen[one.Name] = one.UID
		}
		all = append(all, one)
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
	case err == nil && a.unseen != nil:
		a.unseen[created.Name] = created.UID
	case err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
		a.doubt = time.Now()
	}
	return err
}
