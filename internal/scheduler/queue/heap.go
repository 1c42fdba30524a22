package queue

import "container/heap"

// podHeap is a heap of pods that know their index in it.
type podHeap struct {
	pods []*QueuedPodInfo
	less func(a, b *QueuedPodInfo) bool
}

func (h *podHeap) push(it *QueuedPodInfo)   { heap.Push((*heapOrder)(h), it) }
func (h *podHeap) remove(it *QueuedPodInfo) { heap.Remove((*heapOrder)(h), it.index) }
func (h *podHeap) fix(it *QueuedPodInfo)    { heap.Fix((*heapOrder)(h), it.index) }

// first returns the first pod, or nil.
func (h *podHeap) first() *QueuedPodInfo {
	if len(h.pods) == 0 {
		return nil
	}
	return h.pods[0]
}

// pop removes the first pod and returns it, or nil.
func (h *podHeap) pop() *QueuedPodInfo {
	if len(h.pods) == 0 {
		return nil
	}
	return heap.Pop((*heapOrder)(h)).(*QueuedPodInfo)
}

// heapOrder implements heap.Interface.
type heapOrder podHeap

func (h *heapOrder) Len() int           { return len(h.pods) }
func (h *heapOrder) Less(i, j int) bool { return h.less(h.pods[i], h.pods[j]) }
func (h *heapOrder) Swap(i, j int) {
	h.pods[i], h.pods[j] = h.pods[j], h.pods[i]
	h.pods[i].index, h.pods[j].index = i, j
}

func (h *heapOrder) Push(x any) {
	it := x.(*QueuedPodInfo)
	it.index = len(h.pods)
	h.pods = append(h.pods, it)
}

func (h *heapOrder) Pop() any {
	last := len(h.pods) - 1
	it := h.pods[last]
	h.pods[last] = nil
	h.pods = h.pods[:last]
	it.index = -1
	return it
}
