package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// checkpoint archives the state of a running container (KEP-2008).
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	pod := s.find(w, r)
	if pod == nil {
		return
	}
	name := r.PathValue("container")
	timeout := int64(0)
	if given := r.URL.Query()["timeout"]; len(given) > 0 {
		var err error
		if timeout, err = strconv.ParseInt(given[len(given)-1], 10, 64); err != nil {
			http.Error(w, "cannot parse value of timeout parameter", http.StatusNotFound)
			return
		}
	}
	path, err := s.archive(r.Context(), pod, name, timeout)
	switch {
	case errors.Is(err, errNotFound):
		http.Error(w, fmt.Sprintf("container %v does not exist", name), http.StatusNotFound)
	case err != nil:
		http.Error(w, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", r.PathValue("namespace"), r.PathValue("pod"), name, err), http.StatusInternalServerError)
	default:
		writeJSON(w, map[string][]string{"items": {path}})
	}
}

// archive writes the state of a running container to a file of root's alone and
// returns its path. A timeout of 0 seconds is the runtime's own. The runtime
// needs CRIU for it.
func (s *Server) archive(ctx context.Context, pod *v1.Pod, container string, timeout int64) (string, error) {
	if podquery.Container(&pod.Spec, container) == nil {
		return "", errNotFound
	}
	id, err := s.containerID(ctx, pod, container)
	if err != nil {
		return "", err
	}
	if err := s.config.Files.MkdirAll(s.config.CheckpointDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(s.config.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container, time.Now().Format(time.RFC3339)))
	return path, s.config.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: path, Timeout: timeout})
}
