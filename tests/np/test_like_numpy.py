"""Expressions that mean the same in mx.np and in official NumPy: shapes and values are equal, and
whether they are bools, whole numbers or floats."""

import numpy as onp
import pytest
from plait import np

A = onp.arange(12.0).reshape(3, 4)
ARRAYS = {
    "A": A,
    "B": A[::-1] * 0.5 - 1,
    "V": onp.array([3.0, 0.0, 1.0, 2.0]),
    "W": onp.array([0.0, 0.0, 1.5, 0.0]),
    "I": onp.array([2, 0, -1]),
    "J": onp.array([[0, 2], [1, 1]]),
    "N": onp.arange(6).reshape(2, 3),
    "M": A % 3 == 0,
    "R": onp.array([True, False, True]),
    "C": onp.array([True, False, False, True]),
    "T": onp.arange(24.0).reshape(2, 3, 4),
    "S": onp.array(2.5),
    "Z": onp.zeros((0, 3)),
}
GETS = """
A[1] A[-1] A[1,2] A[1,2].shape A[:,1] A[1:,::2] A[...,-1] A[None] A[:,None,1] A[::-1] A[::-2,::-1]
A[5:] A[()] A[...] A[2:0:-1] S[()] S[...] S[None] Z[0:0] Z[:,1] T[1,...,2] T[...,0,:] A[1:1]
A[[0,2]] A[[0,2],[1,3]] A[I] A[I,1] A[1,I] A[:,I] A[J] A[J,J] A[J,0] T[I[:2]%2,:,I[:2]] T[:,I]
T[0,:,I] T[I[1:2],0] T[:,[0,2],[1,3]] T[[0,1],...,[1,3]] A[[[0,1],[1,2]]] A[I.tolist()] V[I] A[[]]
A[:,[]] T[None,I[:2]%2] T[[0],None,[1]] A[M] A[M].shape A[R] A[R,1] A[R,I[:2]] A[:,C] A[R][:,C]
A[M&(A>4)] T[0][M] T[:,R] T[:,M] T[0,R] T[...,C] T[:,R,1:3] A[[True,False,True]] A[True] A[False]
A[True,1] A[None,True] A[True,True] A[...,True] S[True] S[False] A[A>100]
A[[True,False,True],[0,1]] Z[Z>0] A[M,None] A[None,M] A[R,::2] A[R,...] T[R[:2],:,C]
A[onp.array([True,False,True])] A[onp.int64(1)] A[onp.array(1)] A[onp.array([0,2]),1:3] A[1][2]
A[1:][0,::2] T[1,R,::2] T[:,None,I,1] len(A) list(V)[1] 2.0~in(A)
""".split()
SHAPES = """
np.reshape(A,(2,-1)) np.reshape(A,(4,3),order='F') np.ravel(A) np.ravel(A,'F') A.reshape(6,2)
A.reshape(-1) A.ravel() A.flatten() np.transpose(T) np.transpose(T,(1,2,0)) A.T T.T A.transpose()
T.transpose(1,0,2) T.transpose((1,0,2)) np.swapaxes(T,0,-1) A.swapaxes(0,1) np.moveaxis(T,0,-1)
np.moveaxis(T,(0,1),(-1,0)) np.rollaxis(T,2) np.rollaxis(T,0,3) np.expand_dims(A,1)
np.expand_dims(A,(0,-1)) np.squeeze(A[None]) np.squeeze(A[None,:,None],0) A[None].squeeze()
np.squeeze(S) np.broadcast_to(V,(2,4)) np.broadcast_to(S,(2,2)) np.broadcast_arrays(A,V)[1]
np.atleast_1d(S) np.atleast_2d(V) np.atleast_3d(V) np.atleast_3d(A) np.atleast_2d(S,V)[1]
np.atleast_3d(S) np.concatenate([A,B]) np.concatenate([A,B],1) np.concatenate([A,V],None)
np.concatenate([A,N.T[:,:1]],1) np.concatenate((M,A)) np.concatenate(T) np.concatenate([Z,Z[:0]])
np.stack([A,B],-1) np.stack([S,S]) np.vstack([V,A]) np.hstack([V,V]) np.hstack([A,B])
np.dstack([A,B]) np.dstack([V,V]) np.column_stack([V,V*2]) np.column_stack([A.T,V]) np.append(V,V)
np.append(A,B,axis=0) np.append(A,[[1,2,3,4]],axis=0) np.vstack([S,S]) np.hstack([S,S])
np.split(A,2,1)[1] np.split(A,[1,2])[2] np.array_split(V,3)[0] np.array_split(A,2,1)[1]
np.array_split(V,[1,9])[1].shape np.hsplit(A,2)[0] np.vsplit(A,3)[1] np.dsplit(T,2)[1]
np.hsplit(V,2)[1] len(np.array_split(V,5)) np.split(V,[2,1])[1].shape np.array_split(V,[-1])[1]
np.tile(A,2) np.tile(V,(2,1)) np.tile(S,3) np.repeat(A,2) np.repeat(A,2,1) np.repeat(A,[1,0,2],0)
A.repeat(2,axis=0) np.repeat(V,[2,1,0,1]) np.roll(A,1) np.roll(A,-1,0) np.roll(T,(1,2),(0,2))
np.roll(A,5,axis=1) np.rot90(A) np.rot90(A,2) np.rot90(A,-1) np.rot90(T,1,(1,2)) np.flip(A)
np.flip(A,1) np.flip(T,(0,2)) np.fliplr(A) np.flipud(A) np.flip(S) np.resize(V,(2,3))
np.resize(A,5) np.resize(V,(0,)).shape np.pad(A,1) np.pad(A,((1,0),(2,1)),constant_values=3)
np.pad(V,(2,1),'edge') np.pad(V,3,'reflect') np.pad(V,(6,9),'reflect') np.pad(A,2,'symmetric')
np.pad(A,((1,2),(3,4)),'wrap') np.pad(A,1,'maximum') np.pad(A,1,'minimum') np.pad(A,1,'mean')
np.pad(V,(1,1),constant_values=(5,6)) np.pad(N,1,'mean')
np.pad(V,((2,3),),'constant',constant_values=-1) np.pad(V,(9,9),'symmetric')
np.pad(V,(5,5),'wrap') np.pad(M,1) np.shape(A) np.ndim(A) np.size(A) np.size(A,1)
np.shape([[1,2]]) np.shape(3) A.shape A.ndim A.size A.itemsize A.nbytes A.strides np.isscalar(3)
np.isscalar(A) np.copy(A) np.matrix_transpose(T) np.permute_dims(T,(2,0,1))
np.broadcast_shapes((2,1),(3,)) np.concat([A,B]) np.astype(A,'int32')
""".split()
SELECTIONS = """
np.take(A,I) np.take(A,J,1) np.take(A,[0,2],0) np.take(A,5) np.take(A,[7,-9],mode='wrap')
np.take(A,[70,-9],mode='clip') np.take(T,I,-2) A.take(I) np.take(V,[[]])
np.take_along_axis(A,np.argsort(A,1),1)
np.take_along_axis(A,np.array([[0],[2],[-1]],dtype='int64'),1) np.take_along_axis(V,I,0)
np.take_along_axis(A,I,None) np.choose(I%3,[I,I+10,I*5]) np.choose(N%2,[N,N*10])
np.choose(I,[V[:3],V[1:],S],mode='wrap') np.choose(I,[V[:3],V[1:],S],mode='clip')
np.compress([0,1,1],A,0) np.compress(C,A,axis=1) np.compress([True,False,True],V) np.extract(M,A)
np.where(M,A,B) np.where(A>3,A,0) np.where(A>3,0,A) np.where(A>3,1.5,N[0,0]) np.where(M)[0]
np.where(R,A.T,V[:,None])[0] np.where(C,A,-1.0) np.where(M,1.0,0.0) np.nonzero(A)[1]
np.nonzero(M)[0] np.flatnonzero(W) np.argwhere(A>5) A.nonzero()[0] np.argwhere(Z)
np.where(N>2,N,1) np.where(N>2,N,1.5) np.where(True,A,B) np.select([A<3,A>8],[A,A*10],-1)
np.delete(V,1) np.delete(A,1,0) np.delete(A,[0,2],1) np.delete(A,slice(0,2),0) np.delete(V,-1)
np.delete(A,[1,5]) np.delete(V,C) np.insert(V,1,5) np.insert(A,1,7,axis=1)
np.insert(A,[0,2],V,axis=0) np.insert(A,1,[1,2,3],axis=1) np.insert(V,[1,2],[5,6])
np.insert(V,1,[5,6]) np.insert(A,[1],[[1],[2],[3]],axis=1) np.insert(V,slice(0,2),[8,9])
np.insert(V,[-1],4) np.insert(A,0,9) np.insert(N,1,2.7,axis=0) np.trim_zeros(W)
np.trim_zeros(W,'f') np.trim_zeros(W[:2]).shape np.diag(V) np.diag(A) np.diag(A,1) np.diag(A,-2)
np.diag(V,-1) np.diag(A,7).shape np.diagflat(A[:2,:2]) np.diagonal(T) np.diagonal(T,1,1,2)
np.diagonal(A,-1) np.tril(A) np.triu(A) np.tril(A,1) np.triu(T,-1) np.tril(V) np.triu(N) np.tri(3)
np.tri(2,4,1) np.tril_indices(3)[0] np.triu_indices(3,1)[1] np.tril_indices_from(A)[0]
np.triu_indices_from(A,1)[1] np.diag_indices(3)[0] np.diag_indices_from(A[:,:3])[1]
np.unravel_index(7,(3,4))[1] np.unravel_index([3,7],(3,4))[0]
np.unravel_index([3,7],(3,4),order='F')[1] np.ravel_multi_index(([0,1],[2,3]),(3,4))
np.ix_(I,I[:2])[1] A[np.ix_([0,2],[1,3])] A[np.ix_(R,C)]
""".split()
CREATIONS = """
np.zeros((2,3)) np.ones(3) np.zeros(()) np.full((2,),7.5) np.full((2,2),V[:2]) np.eye(3)
np.eye(2,4,1) np.eye(2,0).shape np.identity(2) np.arange(5.0) np.arange(1.0,7,2)
np.arange(3.0,0,-1) np.linspace(0,1,5) np.linspace(2,0,4,endpoint=False) np.linspace(0,1,1)
np.linspace(0,1,0).shape np.linspace(V,V+1,3) np.linspace(V,V+1,3,axis=1)
np.linspace(0,1,3,retstep=True)[1] np.logspace(0,2,5) np.logspace(0,3,4,base=2)
np.geomspace(1,8,4) np.hanning(5) np.hamming(6) np.blackman(7) np.hanning(1) np.hanning(0).shape
np.meshgrid(V,W)[0] np.meshgrid(V,W,indexing='ij')[1] np.meshgrid(V,W,V)[2].shape
np.meshgrid(V,W,sparse=True)[1] np.meshgrid(V)[0] np.indices((2,3)) np.zeros_like(N)
np.ones_like(A,dtype='int32') np.full_like(A,2) np.full_like(N,2.7) np.empty_like(A).shape
np.empty((2,0)).shape np.zeros((0,3)) np.ones((2,),dtype=int) np.zeros(2,bool) np.array(A)
np.array(N).dtype.name np.asarray(A) np.array(A,ndmin=3) np.ascontiguousarray(S)
np.fromfunction(lambda~i,j:i+j,(2,3)) np.mgrid[0:2.0,0:3.0] np.ogrid[0:2.0,0:3.0][1]
np.array([1.5,2]) np.array(5.0) np.full(2,2**60,dtype='int64') np.zeros_like(A,shape=(2,))
np.frombuffer(b'abcd',dtype='uint8') np.fromiter([1.0,2.0],float)
np.zeros(shape=(2,),dtype='int8').dtype.name
""".split()
NUMBERS = """
A.item(3) A.item(1,2) A.item((1,2)) S.item() A.tolist() S.tolist() float(S) int(S) bool(S)
f'{S:.2f}' f'{A[0,1]}' str(A) str(S) np.pi np.inf np.newaxis np.e np.float32 np.int64(3)
np.finfo(np.float32).eps np.iinfo('int8').max np.can_cast('int32','int64')
np.issubdtype(np.float32,np.floating) np.promote_types('f4','i4').name np.result_type(A,N).name
np.dtype('float32').name np.shares_memory(A,A) np.shares_memory(A,A.copy())
np.may_share_memory(A,A[0]) np.shares_memory(A[0],A[1]) A.tobytes() A.astype(int).dtype.name
A.astype('int32').tolist() list(A.flat)[5] A.flat[7] A.real N.imag A.mT
""".split()


def names(convert):
    return {name: convert(value) for name, value in ARRAYS.items()}


def plain(x):
    return x.asnumpy() if isinstance(x, np.ndarray) else x


def same(got, want, where=""):
    if isinstance(want, (list, tuple)) and not isinstance(want, str):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
        return
    if isinstance(want, (onp.ndarray, onp.generic)):
        assert isinstance(got, (np.ndarray, onp.generic, int, float, bool)), type(got)
        got = onp.asarray(plain(got))
        assert got.shape == want.shape
        kinds = {"u": "i"}
        assert kinds.get(got.dtype.kind, got.dtype.kind) == kinds.get(
            want.dtype.kind, want.dtype.kind
        )
        onp.testing.assert_allclose(
            got.astype("float64"), want.astype("float64"), rtol=1e-6, atol=1e-6
        )
    else:
        assert got == want


@pytest.mark.parametrize("text", GETS + SHAPES + SELECTIONS + CREATIONS + NUMBERS)
def test_equals_numpy(text):
    text = text.replace("~", " ")
    want = eval(text, {"np": onp, "onp": onp, **names(lambda a: a)})
    same(eval(text, {"np": np, "onp": onp, **names(np.array)}), want)


SETS = """
A[1]=5 A[1,2]=5 A[:,1]=V[:3] A[1:,::2]=7 A[...]=2 A[()]=1 A[::-1]=B A[:,::-2]=B[:,:2]
A[1]=[1,2,3,4] A[None]=B A[2]=S S[()]=4 S[...]=3 A[-1,-1]=S A[[0,2]]=9 A[[0,2],[1,3]]=[5,6] A[I]=B
A[I,1]=V[:3] A[:,I]=B[:,:3] A[J,J]=1 T[:,[0,2],[1,3]]=5 A[[0,0]]=[[1,1,1,1],[2,2,2,2]] A[I,::2]=3
A[R,I[:2]]=7 A[M]=0 A[A>5]=-1 A[R]=8 A[R]=B[R] A[:,C]=4 A[M]=A[M]*2 A[R,1]=6 A[R,::2]=[5,6]
T[:,R]=1 T[0][M]=1 A[A>100]=[] A[[True,False,True]]=3 A[True]=2 A[False]=2 A[M]=S A[R]=V
T[...,C]=2 S[True]=9 T[R[:2]]=A A[onp.array([True,False,True])]=3 N[N>2]=0 N[0]=2.9 A[R]=[[1],[2]]
Z[Z>0]=1 A[1]=N[0,0] A[M&R[:,None]]=5 A[1:1]=5 A[[]]=5 A[0]+=1 A[:,1]*=2 A[I]-=1 A[M]+=1
""".split()


@pytest.mark.parametrize("text", SETS)
def test_assignment_equals_numpy(text):
    ours, theirs = names(np.array), names(onp.copy)
    exec(text, {"np": np, "onp": onp}, ours)
    exec(text, {"np": onp, "onp": onp}, theirs)
    for name in ARRAYS:
        same(ours[name], theirs[name])


REFUSED = """
A[5] A[0,9] A[:,4] A[1,2,3] S[0] A[...,...] A[[5]].asnumpy() A[[-4]].asnumpy()
A[np.array([3,9])].asnumpy() A[R[:2]] A[C] A[M.T] A[:,R] A[[True,False]] A['a'] A[1.0] A[I,J[:,0]]
A[[[0],[1,2]]] np.take(A,12).asnumpy() np.take(A,[-13]).asnumpy() np.take(A,3,0).asnumpy()
""".split()


@pytest.mark.parametrize("text", REFUSED)
def test_what_numpy_refuses_by_index_error(text):
    with pytest.raises((IndexError, ValueError)) as caught:
        eval(text, {"np": np, "onp": onp, **names(np.array)})
    wants_index = not any(t in text for t in ("J[:,0]", "[[[0]"))
    assert isinstance(caught.value, IndexError) or not wants_index
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "text",
    """
np.reshape(A,(5,-1)) A.reshape(-2) A.reshape(-1,-1) np.concatenate([S,S]) np.stack([A,V])
np.split(A,3,1) np.squeeze(A,0) np.expand_dims(A,5) np.broadcast_to(A,(4,3)) np.transpose(A,(0,0))
np.moveaxis(A,0,5) np.choose(I+9,[I,I]) np.concatenate([]) A[0]=V[:2] A[M]=V[:3]
np.insert(A,1,2,9) np.where(A,B) np.pad(A,-1) np.linspace(0,1,-1) np.array([[1],[1,2]])
np.array('a') len(S) list(S) float(A) bool(A) np.take(A,1,7) np.vsplit(V,2) np.fliplr(V)
np.tril(S) A.item() A.astype('int32',casting='safe') np.diag(T) A.reshape(0,-1)
""".split(),
)
def test_other_refusals(text):
    scope = {"np": np, "onp": onp, **names(np.array)}
    with pytest.raises((ValueError, TypeError)) as caught:
        exec(text.replace("~", " "), scope)
    assert len(str(caught.value)) > 15
