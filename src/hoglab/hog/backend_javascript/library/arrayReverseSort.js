import { arraySort } from './arraySort.js'

export function arrayReverseSort(items) {
    return arraySort(items).reverse()
}
