package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
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
	path, err := s.config.Backend.Checkpoint(r.Context(), pod, name, timeout)
	switch {
	case errors.Is(err, ErrNotFound):
		http.Error(w, fmt.Sprintf("container %v does not exist", name), http.StatusNotFound)
	case err != nil:
		http.Error(w, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", r.PathValue("namespace"), r.PathValue("pod"), name, err), http.StatusInternalServerError)
	default:
		writeJSON(w, map[string][]string{"items": {path}})
	}
}
