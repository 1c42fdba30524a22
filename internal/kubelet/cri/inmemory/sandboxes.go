package inmemory

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

type sandbox struct {
	config     *runtimeapi.PodSandboxConfig
	status     *runtimeapi.PodSandboxStatus
	handler    string
	containers map[string]*container
}

// uid returns the UID of the pod by which kubelets select.
func (s *sandbox) uid() string { return s.status.GetLabels()[kubelettypes.KubernetesPodUIDLabel] }

// sandboxes has the sandboxes of a runtime by their IDs and by the UIDs of their
// pods.
type sandboxes struct {
	byID  map[string]*sandbox
	byPod map[string]map[string]*sandbox
}

func (s *sandboxes) add(added *sandbox) {
	id, uid := added.status.Id, added.uid()
	s.byID[id] = added
	if s.byPod[uid] == nil {
		s.byPod[uid] = make(map[string]*sandbox)
	}
	s.byPod[uid][id] = added
}

func (s *sandboxes) remove(removed *sandbox) {
	id, uid := removed.status.Id, removed.uid()
	delete(s.byID, id)
	if delete(s.byPod[uid], id); len(s.byPod[uid]) == 0 {
		delete(s.byPod, uid)
	}
}

// selectable returns the sandboxes that a selector may match: the sandboxes of
// one pod, or all.
func (s *sandboxes) selectable(selector map[string]string) map[string]*sandbox {
	if uid, ok := selector[kubelettypes.KubernetesPodUIDLabel]; ok {
		return s.byPod[uid]
	}
	return s.byID
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
